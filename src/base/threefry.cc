#include "base/threefry.h"

namespace tessera {

std::vector<KeyData> split(KeyData key, std::size_t n) {
  std::vector<KeyData> keys;
  keys.reserve(n);
  for (std::size_t i = 0; i < n; ++i) keys.push_back(split_at(key, i));
  return keys;
}

}  // namespace tessera
