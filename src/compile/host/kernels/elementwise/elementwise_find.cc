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

template <class Families>
const TileKernel* find_among(const Families& families, std::string_view name, DType dtype) {
  for (const auto family : families) {
    const TileKernel* kernel = find_in(family(), name, dtype);
    if (kernel != nullptr) return kernel;
  }
  return nullptr;
}

}  // namespace

const TileKernel* find_tile_kernel(std::string_view name, DType dtype) {
  const TileKernel* kernel = find_among(elementwise::kFamilies, name, dtype);
  if (kernel == nullptr) kernel = find_among(elementwise::kWideFamilies, name, dtype);
  if (kernel == nullptr) kernel = find_among(elementwise::kOtherFamilies, name, dtype);
  return kernel;
}

KernelName name_of(const TileKernel& kernel) {
  KernelName found = {};
  const auto search = [&](const auto& families) {
    for (const auto family : families) {
      for (const elementwise::Entry& entry : family()) {
        if (&entry.kernel == &kernel) found = {.name = entry.name, .dtype = entry.dtype};
      }
    }
  };
  search(elementwise::kFamilies);
  search(elementwise::kWideFamilies);
  search(elementwise::kOtherFamilies);
  return found;
}

}  // namespace tessera::kernels
