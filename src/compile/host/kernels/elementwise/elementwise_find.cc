#include "compile/host/kernels/elementwise/elementwise.h"
#include "compile/host/kernels/elementwise/elementwise_internal.h"

namespace tessera::kernels {

namespace {

const TileKernel* find_in(std::span<const elementwise::Entry> entries, std::string_view name,
                          DType dtype) {
  for (const elementwise::Entry& entry : entries) {
    if (entry.name == name && entry.dtype == dtype) return &entry.kernel;
  }
  return nullptr;
}

}  // namespace

const TileKernel* find_tile_kernel(std::string_view name, DType dtype) {
  for (const auto family : elementwise::kFamilies) {
    const TileKernel* kernel = find_in(family(), name, dtype);
    if (kernel != nullptr) return kernel;
  }
  for (const auto family : {&elementwise::half_entries, &elementwise::whole_entries,
                            &elementwise::double_entries, &elementwise::conversion_entries}) {
    const TileKernel* kernel = find_in(family(), name, dtype);
    if (kernel != nullptr) return kernel;
  }
  return nullptr;
}

}  // namespace tessera::kernels
