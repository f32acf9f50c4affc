#include "compile/host/kernels/tile/elementwise.h"
#include "compile/host/kernels/tile/elementwise_internal.h"

namespace tessera::kernels {

TileKernel find_tile_kernel(std::string_view name, DType dtype) {
  for (const auto family : elementwise::kFamilies) {
    for (const elementwise::Entry& entry : family()) {
      if (entry.name == name && entry.dtype == dtype) return entry.kernel;
    }
  }
  return nullptr;
}

}  // namespace tessera::kernels
