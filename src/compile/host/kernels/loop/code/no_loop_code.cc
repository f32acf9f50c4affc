// For builds without Xbyak: no loop becomes machine code.
#include "compile/host/kernels/loop/code/loop_code.h"

namespace tessera::kernels::loops {

bool has_loop_code() { return false; }

std::unique_ptr<const LoopCode> make_loop_code(const LoopProgram&, const Order&) { return nullptr; }

}  // namespace tessera::kernels::loops
