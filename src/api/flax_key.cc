#include <tessera/random.h>

#include "base/flax_keys.h"

namespace tessera::random {

Key fold_in(const Key& key, const std::vector<std::string>& path, std::uint32_t counter,
            std::source_location where) {
  return fold_in(key, flax_fold_data(path, counter), where);
}

}  // namespace tessera::random
