#include "partition/partition.h"

#include <cstdio>
#include <ctime>
#include <gtest/gtest.h>
#include <map>

#include <tessera/error.h>

#include "partition/test_programs.h"

namespace tessera::partition {

std::string testing::summary(const Function& partitioned) {
  std::map<std::string, std::pair<int, std::int64_t>> kinds;
  for (const CollectiveInfo& info : explain(partitioned)) {
    ++kinds[info.kind].first;
    kinds[info.kind].second += info.bytes;
  }
  std::string text;
  for (const auto& [kind, total] : kinds) {
    text += (text.empty() ? "" : ", ") + kind + " " + std::to_string(total.first) + " " +
            std::to_string(total.second);
  }
  return text;
}

namespace {

using testing::MlpStep;
using testing::Program;
using testing::summary;
using testing::TransformerStep;

std::size_t count(const ir::Function& function, const ops::OpRecord& op) {
  std::size_t n = 0;
  for (const ir::Equation& equation : function.equations) n += equation.op == &op ? 1 : 0;
  return n;
}

TEST(Partition, OneDeviceHasNoCollectives) {
  const MlpStep mlp(Mesh(), 64, 32, 128, 2);
  const ir::Function out = partition(mlp.program.function, mlp.options({}, {}, {}));
  EXPECT_EQ(summary(out), "");
  EXPECT_EQ(explain_text(out), "no collectives\n");
}

TEST(Partition, DataParallelReducesGradients) {
  const MlpStep mlp(make_mesh({{"data", 8}}), 2048, 256, 1024, 2);
  const ir::Function out = partition(mlp.program.function, mlp.options({"data"}, {}, {}));
  EXPECT_EQ(summary(out), "all_reduce 5 4194308") << explain_text(out);
  // The loss and a gradient of 1 MiB, then each gradient as soon as it is known.
  EXPECT_EQ(count(out, ops::all_reduce_op), 4U);
  EXPECT_EQ(count(out, ops::all_slice_op), 0U);
}

TEST(Partition, FsdpGathersWeightsOnceAndScattersGradients) {
  const MlpStep mlp(make_mesh({{"data", 8}}), 2048, 256, 1024, 2);
  const ir::Function out =
      partition(mlp.program.function, mlp.options({"data"}, {none, "data"}, {"data"}));
  EXPECT_EQ(summary(out), "all_gather 4 4194304, all_reduce 1 4, reduce_scatter 4 4194304")
      << explain_text(out);
  EXPECT_EQ(count(out, ops::reduce_scatter_op), 4U);
  for (std::size_t i = 1; i < out.outputs.size(); ++i) {
    EXPECT_EQ(out.sharding(out.outputs[i]), out.sharding(out.inputs[i + 1]));
  }
}

TEST(Partition, TensorParallelKeepsHiddenSplit) {
  const MlpStep mlp(make_mesh({{"data", 2}, {"model", 4}}), 4096, 256, 1024, 1);
  const ir::Function out =
      partition(mlp.program.function, mlp.options({"data"}, {none, "model"}, {"model"}));
  // y over model; both weight gradients over data; the loss.
  EXPECT_EQ(summary(out), "all_reduce 4 2621444") << explain_text(out);
}

TEST(Partition, TensorParallelWithSplitFeatures) {
  // The layout of the two-layer tutorial: inputs split over both axes.
  const MlpStep mlp(make_mesh({{"data", 2}, {"model", 4}}), 4096, 256, 1024, 1);
  const ir::Function out =
      partition(mlp.program.function, mlp.options({"data", "model"}, {none, "model"}, {"model"}));
  // x and the cotangent are gathered, y is scattered; weights stay where they are. The loss is the
  // sum of 8 grains, which are added over `model` and then gathered.
  EXPECT_EQ(count(out, ops::all_gather_op), 3U) << explain_text(out);
  EXPECT_EQ(count(out, ops::reduce_scatter_op), 1U);
  for (const CollectiveInfo& info : explain(out)) {
    if (info.type.shape == Shape{8} || info.type.shape[0] == 4096) continue;
    EXPECT_EQ(info.kind, "all_reduce") << info.because;
    EXPECT_EQ(info.group_size, 2) << info.because;
  }
}

TEST(Partition, TransformerMovesOnlyWeightsAndGradients) {
  const TransformerStep step(make_mesh({{"data", 8}}), 3);
  const std::int64_t bytes = 4 * (512 * 256 + 3 * (256 + 4 * 256 * 256));
  const auto text = [](const char* kind, int arrays, std::int64_t total) {
    return std::string(kind) + " " + std::to_string(arrays) + " " + std::to_string(total);
  };
  const ir::Function replicated = partition(step.program.function, step.options(false));
  EXPECT_EQ(summary(replicated), text("all_reduce", 17, bytes + 4)) << explain_text(replicated);
  const ir::Function fsdp = partition(step.program.function, step.options(true));
  EXPECT_EQ(summary(fsdp), text("all_gather", 16, bytes) + ", all_reduce 1 4, " +
                               text("reduce_scatter", 16, bytes))
      << explain_text(fsdp);
  EXPECT_EQ(count(fsdp, ops::reduce_scatter_op), 4U);
  EXPECT_EQ(count(fsdp, ops::all_slice_op), 0U);
}

TEST(Partition, ConstraintsDisappearAndHold) {
  Program p(make_mesh({{"data", 2}, {"model", 4}}));
  const ir::ValueId x = p.input({8, 16});
  const ir::ValueId y = p.constrain(p.scaled(x, 2), {none, "model"});
  p.b.set_outputs({p.scaled(y, 3)});
  const ir::Function out = partition(p.function, {.inputs = {p.spec(x, {"model"})},
                                                  .is_storage = {},
                                                  .outputs = {},
                                                  .output_follows = {},
                                                  .passes = {.verify = true}});
  EXPECT_EQ(count(out, ops::sharding_constraint_op), 0U);
  EXPECT_EQ(out.sharding(out.outputs[0]), p.spec(x, {none, "model"}));
  EXPECT_EQ(summary(out), "all_to_all 1 128");
}

TEST(Partition, InexactCutsMoveTheOperand) {
  // A tree of eight grains cannot be cut into three shards, nor an inner dimension of one grain
  // into two.
  for (const auto& [size, inner, spec] :
       {std::tuple<std::int64_t, std::int64_t, P>{3, 32, {"a"}}, {2, 4, {none, "a"}}}) {
    Program p(make_mesh({{"a", size}}));
    const ir::ValueId x = p.input({48, inner});
    p.b.set_outputs({p.sum(x, {0, 1})});
    const ir::Function out = partition(p.function, {.inputs = {p.spec(x, spec)},
                                                    .is_storage = {},
                                                    .outputs = {},
                                                    .output_follows = {},
                                                    .passes = {.verify = true}});
    EXPECT_EQ(count(out, ops::all_gather_op) + count(out, ops::all_to_all_op), 1U);
    EXPECT_EQ(count(out, ops::all_reduce_op), 0U);
  }
}

TEST(Partition, TwentyFourGrainsAllowThreeDevices) {
  Program p(make_mesh({{"a", 3}}));
  p.function.grains = 24;
  const ir::ValueId x = p.input({50, 32});
  p.b.set_outputs({p.sum(x, {0})});
  const ir::Function out = partition(p.function, {.inputs = {p.spec(x, {"a"})},
                                                  .is_storage = {},
                                                  .outputs = {},
                                                  .output_follows = {},
                                                  .passes = {.verify = true}});
  EXPECT_EQ(summary(out), "all_reduce 1 128");
}

TEST(Partition, ConstantsCarryNothingBetweenUsers) {
  Program p(make_mesh({{"a", 4}}));
  const ir::ValueId x = p.input({8, 8});
  const ir::ValueId y = p.input({8, 8});
  const ir::ValueId ones = p.full(1, {8, 8});
  p.b.set_outputs({p.add(x, ones), p.add(y, ones)});
  const ir::Function out =
      partition(p.function, {.inputs = {p.spec(x, {"a"}), p.spec(y, {none, "a"})},
                             .is_storage = {},
                             .outputs = {},
                             .output_follows = {},
                             .passes = {.verify = true}});
  EXPECT_EQ(summary(out), "");
  EXPECT_EQ(count(out, ops::constant_op), 2U);
  EXPECT_EQ(count(out, ops::all_slice_op), 0U);
}

TEST(Partition, ABroadcastIsMadeAgainInsteadOfBeingMoved) {
  Program p(make_mesh({{"a", 4}}));
  const ir::ValueId x = p.input({8, 16});
  const ir::ValueId y = p.input({8, 16});
  const ir::ValueId bias = p.input({16});
  const ir::ValueId broadcast = p.broadcast(bias, {1}, {8, 16});
  p.b.set_outputs({p.add(x, broadcast), p.add(y, broadcast)});
  const auto with_bias = [&](const P& spec) {
    return partition(p.function,
                     {.inputs = {p.spec(x, {"a"}), p.spec(y, {none, "a"}), p.spec(bias, spec)},
                      .is_storage = {},
                      .outputs = {},
                      .output_follows = {},
                      .passes = {.verify = true}});
  };
  const ir::Function whole = with_bias({none});
  EXPECT_EQ(count(whole, ops::broadcast_in_dim_op), 2U);
  EXPECT_EQ(count(whole, ops::all_to_all_op), 0U);
  EXPECT_EQ(count(whole, ops::all_slice_op), 1U);
  const ir::Function split = with_bias({"a"});
  EXPECT_EQ(count(split, ops::broadcast_in_dim_op), 2U);
  EXPECT_EQ(count(split, ops::all_to_all_op), 0U);
  EXPECT_EQ(count(split, ops::all_gather_op), 1U);
}

TEST(Partition, ReshapesKeepMajorSplits) {
  Program p(make_mesh({{"a", 4}, {"b", 2}}));
  const ir::ValueId x = p.input({8, 6, 32});
  const ir::ValueId merged = p.reshape(x, {48, 32});
  p.b.set_outputs({merged, p.reshape(p.scaled(merged, 2), {8, 6, 4, 8})});
  const ir::Function out = partition(p.function, {.inputs = {p.spec(x, {"a", none, "b"})},
                                                  .is_storage = {},
                                                  .outputs = {},
                                                  .output_follows = {},
                                                  .passes = {.verify = true}});
  EXPECT_EQ(summary(out), "");
  EXPECT_EQ(to_string(p.function.mesh, out.sharding(out.outputs[0])), "{a},{b}");
  EXPECT_EQ(to_string(p.function.mesh, out.sharding(out.outputs[1])), "{a},{},{b},{}");
}

TEST(Partition, ReshapesThatDoNotFitMove) {
  Program p(make_mesh({{"a", 4}}));
  const ir::ValueId x = p.input({6, 8});
  p.b.set_outputs({p.reshape(x, {48})});
  const ir::Function out = partition(p.function, {.inputs = {p.spec(x, {"a"})},
                                                  .is_storage = {},
                                                  .outputs = {},
                                                  .output_follows = {},
                                                  .passes = {.verify = true}});
  EXPECT_FALSE(summary(out).empty());
}

class Faults : public ::testing::Test {
 protected:
  Faults() : mlp_(make_mesh({{"data", 8}}), 2048, 256, 1024, 1) {
    good_ = partition(mlp_.program.function, mlp_.options({"data"}, {none, "data"}, {"data"}));
  }
  ir::Equation& first(const ops::OpRecord& op) {
    for (ir::Equation& equation : good_.equations) {
      if (equation.op == &op) return equation;
    }
    throw InternalError("the program has no such equation");
  }
  void expect_rejected(const std::string& rule) {
    try {
      verify_partitioned(good_, "a planted fault");
      FAIL() << "not found: " << rule;
    } catch (const InternalError& error) {
      EXPECT_NE(std::string(error.what()).find(rule), std::string::npos) << error.what();
    }
  }

  MlpStep mlp_;
  ir::Function good_;
};

TEST_F(Faults, GoodProgramPasses) { EXPECT_NO_THROW(verify_partitioned(good_, "split")); }

TEST_F(Faults, MissingSharding) {
  good_.values[3].sharding.reset();
  expect_rejected("value %3 has no sharding");
}

TEST_F(Faults, MissingGather) {
  const ir::Equation gather = first(ops::all_gather_op);
  for (ir::Equation& equation : good_.equations) {
    if (equation.op == &ops::all_gather_op) continue;
    for (ir::ValueId& id : equation.operands) {
      if (id == gather.results[0]) id = gather.operands[0];
    }
  }
  expect_rejected("a factor is split");
}

TEST_F(Faults, MissingReduction) {
  const ir::Equation reduction = first(ops::all_reduce_op);
  for (ir::ValueId& id : good_.outputs) {
    if (id == reduction.results[0]) id = reduction.operands[0];
  }
  expect_rejected("an output is partial");
}

TEST_F(Faults, WrongReduction) {
  first(ops::reduce_scatter_op).attributes.set("reduction", std::string("max"));
  expect_rejected("reduction that made it");
}

TEST_F(Faults, WrongLayoutOfAResult) {
  const ir::ValueId id = first(ops::dot_general_op).results[0];
  std::swap(good_.values[id].sharding->dims[0], good_.values[id].sharding->dims[1]);
  expect_rejected("after a planted fault");
}

TEST_F(Faults, GatherThatSlices) {
  ir::Equation& gather = first(ops::all_gather_op);
  gather.op = &ops::all_slice_op;
  expect_rejected("moves in a way that its collective cannot");
}

TEST(Partition, ExplainsTheCause) {
  MlpStep mlp(make_mesh({{"data", 8}}), 2048, 256, 1024, 1);
  for (ir::Equation& equation : mlp.program.function.equations) equation.span = {"mlp.cc", 7};
  const ir::Function out =
      partition(mlp.program.function, mlp.options({"data"}, {none, "data"}, {"data"}));
  const std::vector<CollectiveInfo> infos = explain(out);
  ASSERT_FALSE(infos.empty());
  EXPECT_EQ(infos[0].kind, "all_gather");
  EXPECT_EQ(infos[0].bytes, 256 * 1024 * 4);
  EXPECT_EQ(infos[0].wire_bytes, 256 * 1024 * 4 / 8 * 7);
  EXPECT_EQ(infos[0].group_size, 8);
  EXPECT_EQ(infos[0].because,
            "operand 1 of dot_general at mlp.cc:7 is needed as {},{}; held as {},{data} because "
            "input 2 is split over {data}");
  EXPECT_EQ(infos.back().span, Span("mlp.cc", 7));
}

TEST(Partition, SpeedOfATransformer) {
  const TransformerStep step(make_mesh({{"data", 8}}), 19);
  PartitionOptions options = step.options(true);
  options.passes.verify = false;
  double best = 1e9;
  for (int i = 0; i < 5; ++i) {
    const std::clock_t start = std::clock();
    partition(step.program.function, options);
    best = std::min(best, 1e3 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  std::printf("%zu equations partitioned in %.2f ms of CPU time\n",
              step.program.function.equations.size(), best);
}

TEST(Partition, Speed) {
  MlpStep mlp(make_mesh({{"data", 4}, {"model", 2}}), 2048, 256, 1024, 38);
  PartitionOptions options = mlp.options({"data"}, {"data", "model"}, {"model", "data"});
  options.passes.verify = false;
  double best = 1e9;
  ir::Function out;
  for (int i = 0; i < 5; ++i) {
    const std::clock_t start = std::clock();
    out = partition(mlp.program.function, options);
    best = std::min(best, 1e3 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  std::printf("%zu equations partitioned in %.2f ms of CPU time\n%s\n",
              mlp.program.function.equations.size(), best, summary(out).c_str());
}

}  // namespace
}  // namespace tessera::partition
