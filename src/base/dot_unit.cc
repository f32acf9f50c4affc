#include "base/dot_unit.h"

namespace tessera {

std::string_view name(DotUnit unit) {
  switch (unit) {
    case DotUnit::avx512_bf16:
      return "avx512_bf16";
    case DotUnit::amx_bf16:
      return "amx_bf16";
    default:
      return "portable";
  }
}

}  // namespace tessera
