#include "compile/host/kernels/elementwise.h"

#include "compile/host/kernels/elementwise_families.h"

namespace tessera::kernels {

namespace {

TileKernel find(std::span<const KernelEntry> entries, std::string_view name, DType dtype) {
  for (const KernelEntry& entry : entries) {
    if (entry.name == name && entry.dtype == dtype) return entry.kernel;
  }
  return nullptr;
}

}  // namespace

TileKernel find_tile_kernel(std::string_view name, DType dtype) {
  constexpr std::string_view kConvert = "convert_";
  if (name.starts_with(kConvert)) {
    const std::size_t to = name.rfind('_') + 1;
    if (name.substr(kConvert.size(), to - 1 - kConvert.size()) != tessera::name(dtype)) {
      return nullptr;
    }
    return find(conversions(dtype), name.substr(to), dtype);
  }
  if (name == "bitcast") name = "copy";
  if (const TileKernel kernel = find(other_kernels(), name, dtype)) return kernel;
  if (dtype == DType::f32) return find(float_kernels(), name, dtype);
  return dtype == DType::f64 ? nullptr : find(integer_kernels(dtype), name, dtype);
}

}  // namespace tessera::kernels
