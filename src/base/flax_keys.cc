#include "base/flax_keys.h"

#include "base/sha1.h"

namespace tessera {

std::uint32_t flax_fold_data(std::span<const std::string> path_names, std::uint32_t counter) {
  std::string text;
  for (const std::string& name : path_names) text += name;
  for (std::uint32_t shift = 32; shift > 0;) {
    shift -= 8;
    if (counter >> shift != 0) text.push_back(static_cast<char>(counter >> shift));
  }
  const auto digest = sha1(text);
  std::uint32_t data = 0;
  for (std::size_t i = 0; i < 4; ++i) data = (data << 8U) | digest[i];
  return data;
}

KeyData flax_fold(KeyData root, std::span<const std::string> path_names, std::uint32_t counter) {
  return fold_in(root, flax_fold_data(path_names, counter));
}

}  // namespace tessera
