// Parameters in files, and their fingerprint.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <tessera/tree.h>

namespace tessera::checkpoint {

struct NamedArray {
  std::string name;
  Array array;
};

/// Writes arrays in the safetensors format, sorted by name. Throws RuntimeFault when the file
/// cannot be written; the old file stays whole in that case.
void write_safetensors(const std::string& path, std::vector<NamedArray> arrays);

/// XXH3-128 as 32 hex digits over the arrays sorted by name: name, dtype, shape, and the elements
/// in row-major little-endian order with all NaNs as one.
std::string fingerprint(std::vector<NamedArray> arrays);

/// The leaves of a tree with their paths.
template <typename T>
std::vector<NamedArray> named_arrays(const T& tree, const std::string& prefix = "") {
  const std::vector<std::string> paths = tree_paths(tree);
  const std::vector<Array> leaves = tree_leaves(tree);
  std::vector<NamedArray> result;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    result.push_back({.name = prefix + paths[i], .array = leaves[i]});
  }
  return result;
}

}  // namespace tessera::checkpoint
