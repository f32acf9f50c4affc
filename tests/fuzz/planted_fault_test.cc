// The fuzz suite can fail: it finds programs and tiles that are made wrong on purpose.
#include <algorithm>
#include <gtest/gtest.h>

#include <tessera/error.h>

#include "ir/text.h"
#include "ops/emit.h"
#include "ops/ops.h"
#include "partition/moves.h"
#include "partition/partition.h"
#include "tests/fuzz/check.h"
#include "tests/ops/sample_inputs.h"

namespace tessera {
namespace {

using testing::Arrays;
using testing::Placed;

/// x w, contracted over a dimension that is split over four devices.
struct Product {
  ir::Function function;
  Placed placed;
  Arrays inputs;
  Arrays wanted;

  Product() {
    function.mesh = make_mesh({{"x", 4}});
    ir::Builder b(function);
    const ir::ValueId x = b.add_input({DType::f32, {6, 64}});
    const ir::ValueId w = b.add_input({DType::f32, {64, 5}});
    b.set_outputs({ops::dot_general(b, x, w, {.lhs_contract = {1}, .rhs_contract = {0}})});
    placed.inputs = {sharding({none, "x"}, x), sharding({"x"}, w)};
    placed.outputs = {replicated_sharding(2)};
    std::mt19937_64 generator(testing::test_seed());
    for (ir::ValueId id : function.inputs) {
      inputs.push_back(testing::random_array(generator, {.type = b.type(id)}));
    }
    wanted = testing::run_whole(function, inputs);
  }

  Sharding sharding(const P& spec, ir::ValueId id) const {
    return to_sharding(function.mesh, spec, function.type(id), "test", {});
  }
  std::optional<std::string> difference(const ir::Function& partitioned,
                                        const testing::Fault& fault = {}) const {
    return testing::first_difference(testing::run_partitioned(partitioned, {}, inputs, fault),
                                     wanted);
  }
};

TEST(PlantedFault, NoneIsFoundWhereThereIsNone) {
  const Product product;
  const ir::Function split = testing::partition_verified(product.function, product.placed);
  EXPECT_EQ(product.difference(split), std::nullopt);
  EXPECT_NE(ir::print(split).find("all_reduce"), std::string::npos) << ir::print(split);
}

TEST(PlantedFault, WrongTile) {
  const Product product;
  const ir::Function split = testing::partition_verified(product.function, product.placed);
  const auto swap_two = [](std::vector<run::Tiles>& tiles) { std::swap(tiles[0][1], tiles[0][2]); };
  EXPECT_NE(product.difference(split, {.tiles = swap_two}), std::nullopt);
}

// The same terms and grains, but the partial sums are added in another order.
TEST(PlantedFault, WrongOrderOfPartialSums) {
  const Product product;
  const ir::Function split = testing::partition_verified(product.function, product.placed);
  const auto swap_both = [](std::vector<run::Tiles>& tiles) {
    for (run::Tiles& input : tiles) std::swap(input[1], input[2]);
  };
  EXPECT_NE(product.difference(split, {.tiles = swap_both}), std::nullopt);
}

// Each device takes its own partial sum for the total.
TEST(PlantedFault, MissingReduction) {
  const Product product;
  ir::Function split = testing::partition_verified(product.function, product.placed);
  for (ir::Equation& equation : split.equations) {
    if (equation.op != &ops::all_reduce_op) continue;
    equation.op = &ops::all_slice_op;
    equation.attributes = {};
  }
  EXPECT_THROW(partition::verify_partitioned(split, "a planted fault"), InternalError);
  EXPECT_NE(product.difference(split), std::nullopt);
}

// Flips one bit of one element of one tile.
TEST(PlantedFault, OneBit) {
  const Product product;
  const ir::Function split = testing::partition_verified(product.function, product.placed);
  const auto flip = [](std::vector<run::Tiles>& tiles) { tiles[1][3]->data()[0] ^= std::byte{1}; };
  EXPECT_NE(product.difference(split, {.tiles = flip}), std::nullopt);
}

// --- in the suite, nested functions included

/// Swaps the first two tiles of each input if they have the same size.
void swap_tiles(std::vector<run::Tiles>& tiles) {
  for (run::Tiles& input : tiles) {
    if (input.size() > 1 && input[0]->size() == input[1]->size()) std::swap(input[0], input[1]);
  }
}

/// Turns reductions over devices into slices.
ir::Function without_reductions(const ir::Function& function) {
  ir::Function result = function;
  for (ir::Equation& equation : result.equations) {
    const auto kind = partition::kind_of(*equation.op);
    if (!kind || !partition::is_reducing(*kind)) continue;
    equation.op = &ops::all_slice_op;
    equation.attributes = {};
  }
  return result;
}

void drop_reductions(ir::Function& function) { function = without_reductions(function); }
void drop_nested_reductions(ir::Function& function) {
  function = ir::with_changed_bodies(function, without_reductions);
}

using Change = std::function<void(run::Executable&)>;
using ChangeControl = std::function<void(run::Control&)>;

/// Applies `change_control` to each control op, and `change` to its nested executables, at any
/// depth. A while loop itself is not changed, since it might not end.
void change_nested(run::Executable& executable, const Change& change,
                   const ChangeControl& change_control) {
  for (run::Task& task : executable.tasks) {
    if (task.control == nullptr) continue;
    run::Control control = *task.control;
    const bool is_changed = control.kind != run::Control::Kind::while_loop;
    if (is_changed && change_control) change_control(control);
    for (run::Nested& nested : control.bodies) {
      if (nested.executable == nullptr) continue;
      run::Executable inner = *nested.executable;
      if (is_changed && change) change(inner);
      change_nested(inner, change, change_control);
      nested.executable = std::make_shared<const run::Executable>(std::move(inner));
    }
    task.control = std::make_shared<const run::Control>(std::move(control));
  }
}

/// Exchanges the partial sums two and three. Sums of two terms are not affected.
void swap_partial_sums(run::Executable& executable) {
  for (run::Task& task : executable.tasks) {
    for (const auto& use : executable.instructions[task.instruction].collectives) {
      const bool is_reducing = use.kind == "all_reduce" || use.kind == "reduce_scatter";
      if (!is_reducing || task.places.size() < 4) continue;
      std::swap(task.places[1], task.places[2]);
      break;
    }
  }
}

void swap_nested_partial_sums(run::Executable& executable) {
  change_nested(executable, swap_partial_sums, {});
}

/// The tasks of the last instruction do nothing, so their buffers keep old contents.
void skip_tasks(run::Executable& executable) {
  class Nothing final : public run::Kernel {
    void run(std::span<std::byte* const>, int) const override {}
  };
  for (run::Task& task : executable.tasks) {
    const bool is_last = task.instruction + 1 == executable.instructions.size();
    if (is_last && task.kernel != nullptr) task.kernel = std::make_shared<Nothing>();
  }
}

void skip_nested_tasks(run::Executable& executable) { change_nested(executable, skip_tasks, {}); }

/// Each iteration of a loop reads the initial carry.
void read_initial_carry(run::Control& control) {
  if (control.kind != run::Control::Kind::scan || control.begin.executable == nullptr) return;
  const run::Binding& begin = control.begin.binding;
  for (std::size_t port = 0; port < begin.outputs.size(); ++port) {
    for (std::size_t tile = 0; tile < begin.outputs[port].size(); ++tile) {
      for (auto& input : control.bodies[0].binding.inputs) {
        for (run::TileBinding& read : input) {
          if (read.even != begin.outputs[port][tile].even) continue;
          read.even = read.odd = begin.inputs[port][tile].even;
        }
      }
    }
  }
}

void make_carries_stale(run::Executable& executable) {
  change_nested(executable, {}, read_initial_carry);
}

/// Exchanges the first and the last tile of each input of a body.
void swap_nested_tiles(run::Executable& executable) {
  change_nested(executable, {}, [](run::Control& control) {
    for (run::Nested& body : control.bodies) {
      for (std::size_t port = 0; port < body.binding.inputs.size(); ++port) {
        const auto& bytes = body.executable->inputs[port].tile_bytes;
        auto& tiles = body.binding.inputs[port];
        if (bytes.front() == bytes.back()) std::swap(tiles.front(), tiles.back());
      }
    }
  });
}

/// A loop whose carry and weights are contracted over a dimension split over four devices.
struct Loop {
  ir::Function function = ir::parse(R"(function
main[mesh="x=4", grains=8](%0: f32[8,64], %1: f32[3,64,64]) {
  %2: f32[8,64], %3: f32[3,8] = scan[body={(%0: f32[8,64], %1: f32[64,64]) {
%2: f32[8,64] = dot_general[lhs_batch=[], lhs_contract=[1], rhs_batch=[], rhs_contract=[0]] %0, %1
    %3: f32[8,64] = constant[dtype=f32, shape=[8,64], value=0.1]
    %4: f32[8,64] = mul %2, %3
    %5: f32[8] = reduce_sum[dims=[1]] %4
    return %4, %5
  }}, length=3, num_carry=1, num_consts=0, reverse=false] %0, %1
  return %2, %3
})");
  Placed placed;
  Arrays inputs;
  Arrays wanted;

  Loop() {
    const auto placed_at = [&](const P& spec, std::size_t i) {
      return to_sharding(function.mesh, spec, function.type(function.inputs[i]), "test", {});
    };
    placed.inputs = {placed_at({none, "x"}, 0), placed_at({none, "x"}, 1)};
    placed.outputs = {placed.inputs[0]};
    std::mt19937_64 generator(testing::test_seed());
    for (ir::ValueId id : function.inputs) {
      inputs.push_back(testing::random_array(generator, {.type = function.type(id)}));
    }
    wanted = testing::run_whole(function, inputs);
  }
  std::optional<std::string> difference(const testing::Fault& fault) const {
    return testing::first_difference(
        testing::run_partitioned(testing::partition_verified(function, placed), {}, inputs, fault),
        wanted);
  }
};

TEST(PlantedFault, InALoop) {
  const Loop loop;
  const ir::Function split = testing::partition_verified(loop.function, loop.placed);
  const std::string body = ir::print(split.equations.back().attributes.body("body"));
  ASSERT_TRUE(body.find("all_reduce") != std::string::npos ||
              body.find("reduce_scatter") != std::string::npos)
      << ir::print(split);
  EXPECT_EQ(loop.difference({}), std::nullopt);
  EXPECT_NE(loop.difference({.program = drop_nested_reductions}), std::nullopt);
  EXPECT_NE(loop.difference({.executable = swap_nested_partial_sums}), std::nullopt);
  EXPECT_NE(loop.difference({.executable = skip_nested_tasks}), std::nullopt);
  EXPECT_NE(loop.difference({.executable = make_carries_stale}), std::nullopt);
  EXPECT_NE(loop.difference({.executable = swap_nested_tiles}), std::nullopt);
}

struct Planted {
  const char* name;
  testing::Fault fault;
  int least;  // how many of the first cases must find it, at least
  std::uint64_t num_cases = 60;
};

/// The first cases that fail because of a fault.
std::vector<fuzz::Case> find_fault(const testing::Fault& fault, std::uint64_t num_cases) {
  std::vector<fuzz::Case> found;
  for (std::uint64_t seed = 1; seed <= num_cases; ++seed) {
    const fuzz::Case c = fuzz::make_case(seed);
    if (fuzz::check(c, nullptr, fault)) found.push_back(c);
  }
  return found;
}

TEST(PlantedFault, TheSuiteFindsEach) {
  const Planted planted[] = {
      {"wrong tile", {.tiles = swap_tiles}, 14},
      {"missing reduction", {.program = drop_reductions}, 5},
      {"wrong order of partial sums", {.executable = swap_partial_sums}, 1, 200},
      {"stale buffer", {.executable = skip_tasks}, 20},
      {"missing reduction in a body", {.program = drop_nested_reductions}, 1},
      {"wrong tile in a body", {.executable = swap_nested_tiles}, 2},
      {"stale buffer in a body", {.executable = skip_nested_tasks}, 5},
      {"stale carry", {.executable = make_carries_stale}, 2, 200}};
  for (const Planted& one : planted) {
    EXPECT_GE(std::ssize(find_fault(one.fault, one.num_cases)), one.least) << one.name;
  }
}

TEST(PlantedFault, CasesBecomeSmall) {
  for (const testing::Fault& fault :
       {testing::Fault{.tiles = swap_tiles}, testing::Fault{.executable = skip_nested_tasks}}) {
    const fuzz::Check recheck = [&](const fuzz::Case& c) { return fuzz::check(c, nullptr, fault); };
    std::vector<fuzz::Case> found = find_fault(fault, 20);
    ASSERT_GE(found.size(), 3U);
    found.resize(3);
    std::vector<std::size_t> sizes;
    for (const fuzz::Case& c : found) {
      const std::string rule = recheck(c)->rule;
      const fuzz::Case small = fuzz::minimised(c, rule, recheck, 20.0);
      EXPECT_EQ(recheck(small)->rule, rule);
      sizes.push_back(0);
      fuzz::for_each_equation(small.function, [&](const auto&, const auto&) { ++sizes.back(); });
      EXPECT_LE(sizes.back(), 12U) << fuzz::to_string(small);
    }
    // A loop, its body and a reader of its result.
    EXPECT_LE(*std::min_element(sizes.begin(), sizes.end()), 6U);
  }
}

TEST(PlantedFault, SpecialValuesAreCompared) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  auto array = [](float value) {
    ops::HostArray result(Type{DType::f32, {}});
    result.data<float>()[0] = value;
    return result;
  };
  EXPECT_EQ(testing::first_difference(array(nan), array(-nan)), std::nullopt);
  EXPECT_NE(testing::first_difference(array(0.0f), array(-0.0f)), std::nullopt);
  EXPECT_NE(testing::first_difference(array(0.0f), array(nan)), std::nullopt);
  EXPECT_NE(testing::first_difference(array(1.0f), array(nan), {.max_ulp = 4.0}), std::nullopt);
  EXPECT_NE(testing::first_difference(array(0.0f), array(1e-45f)), std::nullopt);
  EXPECT_EQ(testing::ulps_between(-0.0f, 1e-45f), 2.0);
  EXPECT_EQ(testing::ulps_between(1.0f, 1.0f + 0x1p-23f), 1.0);
}

}  // namespace
}  // namespace tessera
