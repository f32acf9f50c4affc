// The times of an accelerator's kernels, from its plugin's recording.
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
  Span where = {};  // of the op whose program the kernel belongs to, if it is recorded
  std::int64_t count = 0;
  std::int64_t ps = 0;
};

/// The kernels of a serialized XSpace, the longest first. Empty if there are none.
std::vector<KernelTime> kernels_of(std::string_view space);

}  // namespace tessera::profile
