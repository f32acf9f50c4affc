// Programs whose cheapest plan is known: their first lines say how many bytes a device has to
// receive, and why. The planned collectives must not send more.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "ir/text.h"
#include "partition/partition.h"
#include "tests/cases/case_file.h"
#include "tests/cases/source_dir.h"

namespace tessera::testing {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> programs() {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(source_dir() / "tests/sharding/known_plans")) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

class KnownPlan : public ::testing::TestWithParam<fs::path> {};

TEST_P(KnownPlan, IsFound) {
  const std::string text = contents(GetParam());
  const std::string start = "# at most ";
  ASSERT_TRUE(text.starts_with(start)) << "the first line says how many bytes are enough";
  const std::int64_t most = std::stoll(text.substr(start.size()));
  const ir::Function function = ir::parse(text);
  partition::PartitionOptions options;
  for (ir::ValueId id : function.inputs) options.inputs.push_back(function.sharding(id));
  options.passes.verify = true;
  const ir::Function partitioned = partition::partition(function, options);
  std::int64_t sent = 0;
  for (const partition::CollectiveInfo& info : partition::explain(partitioned)) {
    sent += info.wire_bytes * info.count;
  }
  EXPECT_GT(sent, 0) << "a plan that moves nothing needs no limit";
  EXPECT_LE(sent, most) << partition::explain_text(partitioned);
}

INSTANTIATE_TEST_SUITE_P(Programs, KnownPlan, ::testing::ValuesIn(programs()),
                         [](const auto& file) { return file.param.stem().string(); });

}  // namespace
}  // namespace tessera::testing
