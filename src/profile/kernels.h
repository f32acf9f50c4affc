// What kernels of an accelerator took, from what its plugin recorded.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/types.h>

namespace tessera::profile {

/// All runs of a kernel, on all devices.
struct KernelTime {
  std::string name;
  Span where = {};  // of the op whose program it belongs to, if the recording says so
  std::int64_t count = 0;
  std::int64_t ps = 0;
};

/// Of a serialized XSpace, the longest first. Empty if it has no kernels.
std::vector<KernelTime> kernels_of(std::string_view space);

}  // namespace tessera::profile
