// The work of the stages on nested functions grows slowly with the depth of nesting. Work is
// measured in allocations: their number is the same in every run, and no stage works without them.
#include <functional>
#include <gtest/gtest.h>

#include "batch/batch.h"
#include "compile/compile.h"
#include "differentiate/differentiate.h"
#include "ops/control/control.h"
#include "partition/partition.h"
#include "tests/nesting/allocations.h"
#include "tests/nesting/programs.h"

namespace tessera::nesting {
namespace {

using ir::Function;

struct Stage {
  const char* name;
  std::function<Function(Function)> run;
};

partition::PartitionOptions split_inputs(const Function& function) {
  partition::PartitionOptions options;
  for (const ir::ValueId id : function.inputs) {
    Sharding sharding = replicated_sharding(function.type(id).rank());
    sharding.dims.back() = {0};
    options.inputs.push_back(std::move(sharding));
  }
  return options;
}

Function compiled(Function function) {
  const compile::CompileOptions options{
      .is_donated = std::vector<bool>(function.inputs.size(), false),
      .output_alias = std::vector<int>(function.outputs.size(), -1)};
  compile::compile(function, options);
  return function;
}

std::vector<Stage> stages(bool is_differentiable) {
  std::vector<Stage> list;
  list.push_back({"differentiate forward", [](Function f) {
                    differentiate::jvp(f, {0, 1});
                    return f;
                  }});
  if (is_differentiable) {
    list.push_back({"differentiate", [](Function f) {
                      return differentiate::value_and_grad(f, {0, 1});
                    }});
  }
  list.push_back({"batch", [](Function f) {
                    return batch::batch(f, {false, true, false, false}, 3).function;
                  }});
  list.push_back({"simplify", [](Function f) {
                    return ir::run_passes(ops::simplify_passes(), std::move(f), {});
                  }});
  list.push_back(
      {"partition", [](Function f) { return partition::partition(f, split_inputs(f)); }});
  list.push_back({"compile passes",
                  [](Function f) { return ir::run_passes(compile::passes(), std::move(f), {}); }});
  list.push_back({"compile", compiled});
  return list;
}

/// Per stage: the number of allocations for `depth` levels, which repeat `kinds` in turn.
std::vector<std::size_t> work(const std::vector<Kind>& kinds, std::size_t depth,
                              const std::vector<Stage>& list) {
  Nest nest;
  for (std::size_t i = 0; i < depth; ++i) nest.kinds.push_back(kinds[i % kinds.size()]);
  Function function = ir::with_mesh(nested_loss(nest), Mesh({{"data", 2}, {"model", 2}}));
  std::vector<std::size_t> counts;
  for (const Stage& stage : list) {
    const std::size_t before = num_allocations();
    function = stage.run(std::move(function));
    counts.push_back(num_allocations() - before);
  }
  return counts;
}

class Work : public ::testing::TestWithParam<std::vector<Kind>> {};

TEST_P(Work, OfEveryStageIsAtMostQuadraticInTheDepth) {
  bool is_differentiable = true;
  for (const Kind kind : GetParam()) is_differentiable = is_differentiable && kind != Kind::loop;
  const std::vector<Stage> list = stages(is_differentiable);
  work(GetParam(), 1, list);  // so that what is allocated once per process is not counted below
  const std::vector<std::size_t> shallow = work(GetParam(), 6, list);
  const std::vector<std::size_t> deep = work(GetParam(), 12, list);
  for (std::size_t i = 0; i < list.size(); ++i) {
    // For twice the depth, the factor is 2 if work is linear, 4 if it is quadratic, and 64 if each
    // level doubles it.
    EXPECT_LE(deep[i], 6 * shallow[i]) << list[i].name;
    RecordProperty(list[i].name, std::to_string(shallow[i]) + " " + std::to_string(deep[i]));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, Work,
    ::testing::Values(std::vector<Kind>{Kind::scan}, std::vector<Kind>{Kind::loop},
                      std::vector<Kind>{Kind::cond}, std::vector<Kind>{Kind::call},
                      std::vector<Kind>{Kind::remat},
                      std::vector<Kind>{Kind::scan, Kind::remat, Kind::cond, Kind::call},
                      std::vector<Kind>{Kind::scan, Kind::loop, Kind::cond, Kind::remat,
                                        Kind::call}));

}  // namespace
}  // namespace tessera::nesting
