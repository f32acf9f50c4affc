// Mistakes in steps that the compiler cuts into stages by their cost.
#include <gtest/gtest.h>

#include <tessera/tessera.h>

#include "tests/errors/caught.h"

namespace tessera {
namespace {

/// Compiles a pipeline over microbatches of f32[2,3] whose stages the compiler cuts.
template <typename F>
void cut(F microbatch, const Schedule& schedule = GPipe{2}, AutoStages auto_stages = {},
         std::source_location where = std::source_location::current()) {
  const MpmdMesh mesh(make_mesh({{"stage", schedule.mpmd_dim()}}), "stage");
  const auto step = [&](Array x) { return treduce(microbatch, x, schedule, Add{}, where); };
  mpmd_jit_with_loop(step, mesh, {.auto_stages = auto_stages}, where)(ones({4, 2, 3}));
}

TEST(StagesErrors, Marks) {
  const Caught error =
      caught([] { cut([](Array x) { return sum(mark_stage_end(mark_stage_end(x * 2) * 3)); }); });
  EXPECT_EQ(error.text,
            "auto_stages: the function already has marks\n"
            "  where:  <this line>\n"
            "  found:  2 marks\n"
            "  wanted: either auto_stages or marks, not both\n"
            "  cure:   remove auto_stages, or the calls of mark_stage_end");
}

TEST(StagesErrors, TwoDerivatives) {
  const Array w = ones({3});
  const auto loss = [](Array v) { return sum(tanh(tanh(v))); };
  std::string line;
  const Caught error = caught([&] {
    cut([&](Array x) {
      const auto first = value_and_grad([&](Array v) { return loss(x * v); })(w);
      line = line_of(1);
      const auto second = value_and_grad([&](Array v) { return loss(x + v); })(w);
      return std::tuple(first, second);
    });
  });
  EXPECT_EQ(
      error.text,
      "auto_stages: a microbatch has two derivatives, and only one can be cut into stages\n"
      "  where:  " +
          line +
          "\n"
          "  found:  another value_and_grad\n"
          "  wanted: one value_and_grad in the function given to treduce\n"
          "  cure:   differentiate the sum of the losses, or end the stages with mark_stage_end");
}

TEST(StagesErrors, MoreStagesThanWork) {
  const Caught error = caught([] { cut([](Array x) { return sum(tanh(x * 2)); }, GPipe{8}); });
  EXPECT_EQ(error.text,
            "auto_stages: the function cannot be cut into this many stages\n"
            "  where:  <this line>\n"
            "  found:  8 stages; the work can be cut into 3 at most\n"
            "  wanted: at least one equation for each stage, whose result the next stage reads\n"
            "  cure:   give the schedule num_stages = 3 or fewer");
}

TEST(StagesErrors, OneFunction) {
  const auto all = [](Array x) { return sum(tanh(tanh(x))); };
  const Caught error = caught([&] { cut([&](Array x) { return remat(all)(x); }); });
  EXPECT_EQ(error.text,
            "auto_stages: the function cannot be cut into this many stages\n"
            "  where:  <this line>\n"
            "  found:  2 stages; the work can be cut into 1 at most\n"
            "  wanted: at least one equation for each stage, whose result the next stage reads\n"
            "  cure:   move the layers out of the one nested function that does all the work");
}

TEST(StagesErrors, OneLoop) {
  const Array layers = ones({8, 3, 3});
  const auto layer = [](Array h, Array w) { return std::pair(tanh(dot(h, w)), std::tuple<>()); };
  std::string line;
  const Caught error = caught([&] {
    cut([&](Array x) {
      return value_and_grad([&](Array ws) {
        line = line_of(1);
        return mean(square(scan(layer, x * 2, ws).first));
      })(layers);
    });
  });
  EXPECT_EQ(error.text,
            "auto_stages: a loop does most of the work, and loops are not cut\n"
            "  where:  " +
                line +
                "\n"
                "  found:  a scan with 96 % of the work, for 2 stages\n"
                "  wanted: loops of at most 75 %\n"
                "  cure:   write the layers one after the other, or as several loops");
}

TEST(StagesErrors, MemoryLimit) {
  const Array a = ones({3, 5});
  const Array b = ones({5, 3});
  const auto microbatch = [&](Array x) {
    return value_and_grad([&](const std::tuple<Array, Array>& w) {
      return mean(square(dot(dot(x, std::get<0>(w)), std::get<1>(w))));
    })(std::tuple(a, b));
  };
  const Caught error = caught([&] { cut(microbatch, GPipe{2}, {.memory_limit = 100}); });
  EXPECT_EQ(error.text,
            "auto_stages: no cut keeps every stage within the memory limit\n"
            "  where:  <this line>\n"
            "  found:  memory_limit = 100 bytes\n"
            "  wanted: at least 400 bytes, which the fullest stage of the best cut needs\n"
            "  cure:   raise the limit, make microbatches smaller, or use more stages");
}

}  // namespace
}  // namespace tessera
