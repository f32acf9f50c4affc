// Random programs on random meshes: several processes give the same bits as one process for all
// devices.
#include <gtest/gtest.h>

#include "tests/fuzz/case.h"
#include "tests/isolated/processes.h"

namespace tessera::testing {
namespace {

TEST(IsolatedRandom, SameBitsAndCollectives) {
  int communicating = 0;
  for (std::uint64_t seed = 1; communicating < 300; ++seed) {
    const fuzz::Case c = fuzz::make_case(seed);
    const std::int64_t devices = c.function.mesh.num_devices();
    if (devices < 2 || devices > 8) continue;
    const Numerics numerics = seed % 3 == 0 ? Numerics::fast : Numerics::exact;
    const ir::Function partitioned =
        partition_verified(with_numerics(fuzz::program_of(c), numerics), c.placed);
    if (partition::explain(partitioned).empty()) continue;
    ++communicating;
    check_in_processes(partitioned, c.placed.output_alias, c.inputs, fuzz::to_string(c));
    ASSERT_FALSE(::testing::Test::HasFatalFailure());
  }
}

}  // namespace
}  // namespace tessera::testing
