// Types that a program and a library that it loads both compile.
#pragma once

#include <tessera/jit.h>
#include <tessera/ops.h>

namespace tessera::testing {

struct SharedLine {
  Array slope, offset;
  TESSERA_TREE(slope, offset)
};

struct SharedSum {
  template <typename T>
  Array operator()(const T& tree) const {
    const std::vector<Array> leaves = tree_leaves(tree);
    return leaves[0] + leaves[1];
  }
};
using SharedJitted = decltype(jit(SharedSum()));

inline float sum_of_line(const SharedJitted& f) {
  return f(SharedLine{scalar(1.F), scalar(2.F)}).item<float>();
}

}  // namespace tessera::testing
