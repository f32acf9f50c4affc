// A library that cache_test loads.
#include "api/call/shared_types.h"

namespace tessera {
namespace {

// The test has a struct of the same name, which is another type.
struct Line {
  Array slope, offset;
  TESSERA_TREE(slope, offset)
};

}  // namespace

extern "C" float sum_of_shared_line(const testing::SharedJitted& f) {
  return testing::sum_of_line(f);
}

extern "C" float sum_of_own_line(const testing::SharedJitted& f) {
  return f(Line{scalar(3.F), scalar(4.F)}).item<float>();
}

}  // namespace tessera
