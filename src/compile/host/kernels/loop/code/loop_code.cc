#include "compile/host/kernels/loop/code/loop_code.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <utility>
#include <xbyak/xbyak_util.h>

#include "compile/host/kernels/loop/code/arithmetic.h"

namespace tessera::kernels::loops {

namespace {

constexpr std::size_t kMostInputs = 3;    // of a kernel
constexpr std::size_t kMostElements = 4;  // of a call

/// What the stack frame begins with.
struct Frame {
  std::byte* const* buffers;
  // For calls of kernels.
  TileInput inputs[kMostInputs];
  std::byte given[kMostInputs][8 * kMostElements];
  std::byte computed[8 * kMostElements];
};
static_assert(sizeof(Frame) % 8 == 0);

constexpr std::size_t kInputs = offsetof(Frame, inputs);
constexpr std::size_t kGiven = offsetof(Frame, given);
constexpr std::size_t kComputed = offsetof(Frame, computed);

/// More than the code takes.
std::size_t most_bytes(const ScalarProgram& program) {
  constexpr std::size_t kFixed = 4096;
  constexpr std::size_t kOfInstruction = 512;
  return kFixed + kOfInstruction * (program.before.size() + program.round.size() +
                                    program.after.size() + program.carried.size());
}

class Code final : public Arithmetic, public LoopCode {
 public:
  explicit Code(ScalarProgram program, std::size_t code_bytes)
      : Arithmetic(std::move(program), code_bytes, sizeof(Frame)) {
    begin_function();
    mov(ptr[rsp], rdi);
    if (has_calls()) prepare_calls();
    emit(program_.before);
    if (!program_.round.empty()) emit_rounds();
    L(end_);
    emit(program_.after);
    end_function();
    add_constants();
    setProtectModeRE();
    function_ = getCode<Function>();
  }

  void run(std::span<std::byte* const> buffers) const override { function_(buffers.data()); }

 private:
  using Function = void (*)(std::byte* const* buffers);

  void emit_rounds() {
    Xbyak::Label top;
    align(16);
    L(top);
    emit(program_.round);
    move_carried();
    if (program_.counter < 0) return jmp(top, T_NEAR);
    const Reg left = general(program_.counter, rax);
    test(left, left);
    jnz(top, T_NEAR);
  }

  void emit(const std::vector<Instruction>& list) {
    for (const Instruction& instruction : list) emit(instruction);
  }

  void emit(const Instruction& made) {
    switch (made.op) {
      case Op::call:
        return call(made);
      case Op::pointer:
        mov(rax, ptr[rsp]);
        mov(rax, ptr[rax + static_cast<std::size_t>(8 * made.offset)]);
        return put(made.outputs[0], rax);
      case Op::load:
        return load(made.outputs[0],
                    general(made.inputs[0], rax) + static_cast<std::size_t>(made.offset));
      case Op::store:
        return store(made.inputs[1],
                     general(made.inputs[0], rax) + static_cast<std::size_t>(made.offset));
      case Op::advance:
        get(rax, made.inputs[0]);
        add_number(rax, made.offset, rdx);
        return put(made.outputs[0], rax);
      case Op::read:
        return read(made);
      case Op::write:
        return write(made);
      case Op::leave:
        return leave_unless(made, end_);
      default:
        return compute(made);
    }
  }

  // --- parts of arrays

  /// rax becomes the address of the part. Jumps if the part does not lie in the array and `place`
  /// says what happens then.
  void find_place(const Instruction& made, std::size_t first_start, Xbyak::Label& outside) {
    const PartPlace& place = *made.place;
    get(rax, made.inputs[0]);
    for (std::size_t d = 0; d < place.dims.size(); ++d) {
      const auto& [last, stride] = place.dims[d];
      const auto most = std::min<std::int64_t>(last, std::numeric_limits<std::int32_t>::max());
      const Reg start = general(made.inputs[first_start + d], rcx);
      movsxd(rcx, start.cvt32());
      if (place.outside) {
        cmp(rcx, static_cast<std::uint32_t>(most));
        ja(outside, T_NEAR);
      } else {
        xor_(edx, edx);
        test(rcx, rcx);
        cmovs(rcx, rdx);
        mov(edx, static_cast<std::uint32_t>(most));
        cmp(rcx, rdx);
        cmovg(rcx, rdx);
      }
      if (std::has_single_bit(static_cast<std::uint64_t>(stride))) {
        shl(rcx, std::countr_zero(static_cast<std::uint64_t>(stride)));
      } else if (stride == static_cast<std::int32_t>(stride)) {
        imul(rcx, rcx, static_cast<int>(stride));
      } else {
        mov(rdx, static_cast<std::uint64_t>(stride));
        imul(rcx, rdx);
      }
      add(rax, rcx);
    }
  }

  void read(const Instruction& made) {
    const PartPlace& place = *made.place;
    Xbyak::Label outside;
    Xbyak::Label done;
    find_place(made, 1, outside);
    mov(rcx, rax);
    for (std::size_t i = 0; i < made.outputs.size(); ++i) {
      load(made.outputs[i], element(place, i));
    }
    if (!place.outside) return;
    jmp(done, T_NEAR);
    L(outside);
    mov(rax, *place.outside);
    for (const int out : made.outputs) put(out, rax);
    L(done);
  }

  void write(const Instruction& made) {
    const PartPlace& place = *made.place;
    Xbyak::Label done;
    find_place(made, 1 + place.offsets.size(), done);
    mov(rcx, rax);
    for (std::size_t i = 0; i < place.offsets.size(); ++i) {
      store(made.inputs[1 + i], element(place, i));
    }
    L(done);
  }

  /// An element of the part at rcx. load() and store() do not change rax before they use it.
  Xbyak::RegExp element(const PartPlace& place, std::size_t i) {
    const std::int64_t offset = place.offsets[i];
    if (offset == static_cast<std::int32_t>(offset)) return rcx + static_cast<std::size_t>(offset);
    mov(rax, static_cast<std::uint64_t>(offset));
    return rcx + rax;
  }

  // --- calls of kernels

  bool has_calls() const {
    const auto calls = [](const std::vector<Instruction>& list) {
      return std::any_of(list.begin(), list.end(),
                         [](const Instruction& made) { return made.op == Op::call; });
    };
    return calls(program_.before) || calls(program_.round);
  }

  void prepare_calls() {
    for (std::size_t i = 0; i < kMostInputs; ++i) {
      const std::size_t input = kInputs + i * sizeof(TileInput);
      lea(rax, ptr[rsp + given(i, 0)]);
      mov(ptr[rsp + (input + offsetof(TileInput, data))], rax);
      mov(byte[rsp + (input + offsetof(TileInput, is_scalar))], 0);
    }
  }
  static std::size_t given(std::size_t input, std::size_t offset) {
    return kGiven + input * sizeof(Frame::given[0]) + offset;
  }

  void call(const Instruction& made) {
    const std::size_t n = made.outputs.size();
    for (std::size_t i = 0; i < made.inputs.size(); ++i) {
      const int v = made.inputs[i];
      store(v, rsp + given(i / n, i % n * bytes_of(v)));
    }
    lea(rdi, ptr[rsp + kInputs]);
    lea(rsi, ptr[rsp + kComputed]);
    mov(edx, static_cast<std::uint32_t>(n));
    mov(rax, reinterpret_cast<std::uintptr_t>(made.kernel->run));
    Xbyak::CodeGenerator::call(rax);
    for (std::size_t i = 0; i < n; ++i) {
      const int out = made.outputs[i];
      load(out, rsp + (kComputed + i * bytes_of(out)));
    }
  }

  Function function_ = nullptr;
  Xbyak::Label end_;
};

}  // namespace

bool has_loop_code() {
  using Xbyak::util::Cpu;
  static const bool kIsSupported = [] {
    const Cpu cpu;
    return cpu.has(Cpu::tAVX) && cpu.has(Cpu::tFMA);
  }();
  return kIsSupported;
}

std::unique_ptr<const LoopCode> make_loop_code(const LoopProgram& program, const Order& order) {
  if (!has_loop_code()) return nullptr;
  auto scalars = scalar_program_of(program, order);
  if (!scalars) return nullptr;
  const std::size_t bytes = most_bytes(*scalars);
  try {
    return std::make_unique<const Code>(*std::move(scalars), bytes);
  } catch (const Xbyak::Error&) {
    return nullptr;  // no memory for code
  }
}

}  // namespace tessera::kernels::loops
