// The reports of lowered and compiled programs about themselves, and the passes that make programs.
#include <gtest/gtest.h>

#include <tessera/error.h>
#include <tessera/tessera.h>

namespace tessera {
namespace {

Array twice_squared(Array x) { return sum(x * x) + sum(x * x); }

TEST(Lowered, TellsWhereLeavesLive) {
  const Mesh mesh = make_mesh({{"data", 4}, {"model", 2}});
  const Array offset = ones({6});
  auto f = jit(
      [&](Array x, Array w) { return std::tuple(dot(x, w) + offset, w); },
      {.in_shardings = {NamedSharding(mesh, P{"data"}), NamedSharding(mesh, (P{none, "model"}))}});
  const auto lowered = f.lower(ones({6, 8}), ones({8, 6}));
  const std::vector<LeafPlacement> arguments = lowered.arguments();
  ASSERT_EQ(arguments.size(), 3U);
  EXPECT_EQ(arguments[0].path, "0");
  EXPECT_EQ(arguments[0].sharding, NamedSharding(mesh, P{"data"}));
  EXPECT_EQ(arguments[0].local_shape, (Shape{2, 8}));  // the largest tile of 6 rows over 4 devices
  EXPECT_EQ(arguments[1].local_shape, (Shape{8, 3}));
  EXPECT_EQ(arguments[2].path, "captured 0");
  EXPECT_EQ(arguments[2].local_shape, (Shape{6}));
  const std::vector<LeafPlacement> results = lowered.results();
  ASSERT_EQ(results.size(), 2U);
  EXPECT_EQ(results[0].path, "0");
  EXPECT_EQ(results[0].sharding, NamedSharding(mesh, (P{"data", "model"})));
  EXPECT_EQ(results[0].local_shape, (Shape{2, 3}));
  // The second result is argument 1 itself.
  EXPECT_EQ(results[1].path, "1");
  EXPECT_EQ(results[1].sharding, arguments[1].sharding);
}

TEST(Lowered, WritesStableHlo) {
  const Mesh mesh = make_mesh({{"data", 4}});
  auto f = jit([](Array x, Array w) { return std::tuple(x * 2.0, dot(transpose(x), w)); },
               {.in_shardings = {NamedSharding(mesh, P{"data"}), NamedSharding(mesh, P{"data"})},
                .donate_argnums = {0}});
  const auto lowered = f.lower(ones({8, 6}), ones({8, 3}));
  const std::string text = lowered.stablehlo();
  for (const char* part :
       {"mhlo.num_replicas = 4 : i32",
        "main(%arg0: tensor<2x6xf32> {tf.aliasing_output = 0 : i32}, %arg1: tensor<2x3xf32>)",
        "stablehlo.all_reduce", "lowered_test.cc\":"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
  EXPECT_EQ(lowered.compile().stablehlo(), text);
}

TEST(Lowered, PlansTheMemoryOfADevice) {
  const Mesh mesh = make_mesh({{"data", 4}});
  auto options = [&](std::vector<int> donated) {
    return JitOptions{.in_shardings = {NamedSharding(mesh, P{"data"})},
                      .donate_argnums = std::move(donated)};
  };
  auto f = [](Array x) { return sort(x) * 2.0; };
  const MemoryPlan plan = jit(f, options({})).lower(ones({4, 256})).compile().memory();
  EXPECT_EQ(plan.arguments, 1024);
  EXPECT_EQ(plan.results, 1024);
  EXPECT_EQ(plan.peak, plan.arguments + plan.results + plan.temporaries);
  EXPECT_GE(plan.temporaries, 0);
  const MemoryPlan donating = jit(f, options({0})).lower(ones({4, 256})).compile().memory();
  EXPECT_EQ(donating.results, 0);
}

TEST(Explain, NamesTheArgumentAndWhatWouldAvoidTheMove) {
  const Mesh mesh = make_mesh({{"data", 4}});
  const use_mesh scope(mesh);
  auto f = jit([](Array x, Array y) { return x + y; }, {.out_shardings = P{"data"}});
  const Array x = device_put(ones({8, 16}), P{"data"});
  const Array y = device_put(ones({8, 16}), P{none, "data"});
  const auto rows = f.lower(x, y).planned_collectives();
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].kind, "all_to_all");
  EXPECT_EQ(rows[0].type, (Type{DType::f32, {8, 16}}));
  EXPECT_EQ(rows[0].bytes, 8 * 16);
  EXPECT_EQ(rows[0].wire_bytes, 8 * 16 / 4 * 3);
  EXPECT_EQ(rows[0].group_size, 4);
  EXPECT_NE(rows[0].where.file.find("lowered_test.cc"), std::string::npos);
  EXPECT_EQ(rows[0].cure, "passing argument 1 as P('data',)");
  // The cure in the message works.
  const auto cured = f.lower(x, device_put(y, P{"data"}));
  EXPECT_TRUE(cured.planned_collectives().empty());
  EXPECT_NO_THROW(assert_no_collectives(cured));
}

TEST(Explain, ReductionsNameTheArgumentThatSplitsThem) {
  const Mesh mesh = make_mesh({{"data", 4}});
  const use_mesh scope(mesh);
  auto f = jit([](Array x) { return sum(x); });
  const auto rows = f.lower(device_put(ones({8, 16}), P{"data"})).planned_collectives();
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].kind, "all_reduce");
  EXPECT_EQ(rows[0].cure, "passing argument 0 without {data}, at 4 times the work per device");
  EXPECT_TRUE(f.lower(device_put(ones({8, 16}), P{})).planned_collectives().empty());
}

TEST(Explain, OutputsThatAreAskedForElsewhere) {
  const Mesh mesh = make_mesh({{"data", 4}});
  const use_mesh scope(mesh);
  const auto doubled = [](Array x) { return x + x; };
  const Array x = device_put(ones({8, 16}), P{"data"});
  const auto rows = jit(doubled, {.out_shardings = P{}}).lower(x).planned_collectives();
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].cure, "requesting output 0 as P('data',)");
  EXPECT_TRUE(jit(doubled, {.out_shardings = P{"data"}}).lower(x).planned_collectives().empty());
}

TEST(AssertNoCollectives, NamesTheFirstOne) {
  const Mesh mesh = make_mesh({{"data", 4}});
  const use_mesh scope(mesh);
  const auto program =
      jit([](Array x) { return sum(x); }).lower(device_put(ones({8, 16}), P{"data"}));
  EXPECT_NO_THROW(assert_no_collectives(program, {"all_gather", "all_to_all"}));
  for (const std::vector<std::string>& kinds :
       {std::vector<std::string>{}, std::vector<std::string>{"all_gather", "all_reduce"}}) {
    try {
      assert_no_collectives(program, kinds);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const UserError& error) {
      EXPECT_EQ(error.mistake().what,
                "assert_no_collectives: the program has the collective all_reduce");
      EXPECT_NE(error.mistake().found.find("f32[], 6 bytes received per device"), std::string::npos)
          << error.mistake().found;
      EXPECT_EQ(error.mistake().cure,
                "avoid it by passing argument 0 without {data}, at 4 times the work per device");
    }
  }
  EXPECT_THROW(assert_no_collectives(program, {"allreduce"}), UserError);
}

TEST(ShardingTable, HasBytesOfADeviceAndTheirTotal) {
  const Mesh mesh = make_mesh({{"data", 4}});
  const use_mesh scope(mesh);
  const auto program = jit([](Array x, Array y) {
                         return x + sum(y);
                       }).lower(device_put(ones({8, 16}), P{"data"}), device_put(ones({3}), P{}));
  EXPECT_EQ(sharding_table(program.arguments()),
            "leaf   type       spec        local shape  bytes per device\n"
            "0      f32[8,16]  P('data',)  [2,16]                    128\n"
            "1      f32[3]     P()         [3]                        12\n"
            "total                                                   140\n");
}

TEST(PlanReshard, MovesATileOnly) {
  const Mesh mesh = make_mesh({{"data", 8}, {"model", 8}});
  const ReshardPlan plan = plan_reshard(
      {DType::f32, {64, 64}}, NamedSharding(mesh, P{"data", "model"}), P{"model", "data"});
  ASSERT_EQ(plan.steps.size(), 1U);
  EXPECT_EQ(plan.steps[0].kind, "collective_permute");
  EXPECT_EQ(plan.steps[0].axes, (std::vector<std::string>{"data", "model"}));
  EXPECT_EQ(plan.steps[0].spec, (P{"model", "data"}));
  EXPECT_EQ(plan.wire_bytes, 256);
  EXPECT_EQ(plan.bound, 1);
  EXPECT_THROW(plan_reshard({DType::f32, {64}}, NamedSharding(mesh, P{}), P{none, "data"}),
               UserError);
}

TEST(Passes, AreObserved) {
  std::vector<std::string> names;
  auto f = jit(twice_squared, {.passes = {.verify = true, .observe = [&](const PassReport& pass) {
                                            names.emplace_back(pass.name());
                                            EXPECT_GE(pass.seconds(), 0);
                                            EXPECT_NE(pass.ir_before().find("function"),
                                                      std::string::npos);
                                            if (pass.name() == "merge_common_subexpressions") {
                                              EXPECT_NE(pass.ir_before(), pass.ir_after());
                                            }
                                          }}});
  EXPECT_EQ(f(ones({4})).item<float>(), 8);
  EXPECT_EQ(names, (std::vector<std::string>{
                       "dissolve_calls", "move_transposes", "add_updates_in_place",
                       "hoist_loop_invariants", "move_products_out_of_loops",
                       "transpose_before_loops", "remove_dead_code", "merge_common_subexpressions",
                       "split", "combine_collectives", "join_attention_gradients",
                       "read_scanned_arrays", "sink_into_loops", "recompute_cheap_values"}));
}

TEST(Passes, AreSwitchedOff) {
  auto count = [](const std::string& text) {
    std::size_t found = 0;
    for (std::size_t at = text.find("reduce_sum"); at != std::string::npos; ++found) {
      at = text.find("reduce_sum", at + 1);
    }
    return found;
  };
  auto merged = jit(twice_squared);
  auto unmerged = jit(twice_squared, {.passes = {.disabled = {"merge_common_subexpressions"}}});
  EXPECT_EQ(count(merged.lower(ones({4})).ir()), 1U);
  EXPECT_EQ(count(unmerged.lower(ones({4})).ir()), 2U);
  EXPECT_EQ(unmerged(ones({4})).item<float>(), merged(ones({4})).item<float>());
}

TEST(Passes, ThatDoNotExistAreMistakes) {
  auto f = jit(twice_squared, {.name = "f", .passes = {.disabled = {"split"}}});
  try {
    f(ones({4}));
    FAIL() << "nothing was thrown";
  } catch (const UserError& error) {
    EXPECT_EQ(error.mistake().what, "jit(f): the pass split cannot be disabled");
    EXPECT_EQ(error.mistake().wanted,
              "move_transposes, add_updates_in_place, hoist_loop_invariants, "
              "move_products_out_of_loops, transpose_before_loops, remove_dead_code, "
              "merge_common_subexpressions, "
              "combine_collectives, "
              "join_attention_gradients, read_scanned_arrays, sink_into_loops, "
              "recompute_cheap_values");
  }
}

}  // namespace
}  // namespace tessera
