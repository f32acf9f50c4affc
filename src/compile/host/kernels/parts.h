// How the work of a kernel is cut into parts.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tessera::kernels {

/// The number of parts: several per worker, which balance the load, but at most `most`, and none
/// with less work than `least`. One worker gets the work in one part.
inline int num_parts_for(int num_workers, std::int64_t work, std::int64_t least,
                         std::int64_t most) {
  constexpr std::int64_t kPartsPerWorker = 4;
  const std::int64_t wanted = num_workers == 1 ? 1 : kPartsPerWorker * num_workers;
  return static_cast<int>(std::max<std::int64_t>(std::min({wanted, work / least, most}), 1));
}

}  // namespace tessera::kernels
