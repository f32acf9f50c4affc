// What several tests of layers use.
#pragma once

#include <gtest/gtest.h>

#include <tessera/nn.h>
#include <tessera/tessera.h>

namespace tessera::nn {

/// Layer number i of a scan.
template <typename Layer>
Layer layer_of(const Scanned<Layer>& scanned, std::int64_t i) {
  return tree_map([i](const Array& x) { return x[i]; }, scanned.layers);
}

template <typename T>
void expect_same_bits(const T& found, const T& wanted, const char* what) {
  const std::vector<std::string> paths = tree_paths(wanted);
  const std::vector<Array> a = tree_leaves(found);
  const std::vector<Array> b = tree_leaves(wanted);
  ASSERT_EQ(a.size(), b.size()) << what;
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(array_equal(a[i], b[i])) << what << ": " << paths[i];
  }
}

}  // namespace tessera::nn
