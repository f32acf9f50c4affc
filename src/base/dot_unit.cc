#include "base/dot_unit.h"

namespace tessera {

std::string_view name(DotUnit unit) {
  return unit == DotUnit::portable ? "portable" : "avx512_bf16";
}

}  // namespace tessera
