// Values that are recomputed instead of being held: cuts, barriers as phases, and lower peaks.
#include "compile/recompute.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>
#include <vector>

#include <tessera/error.h>

#include "compile/barriers.h"
#include "compile/compile.h"
#include "compile/min_cut.h"
#include "compile/pressure.h"
#include "ir/builder.h"
#include "ir/text.h"

namespace tessera::compile {
namespace {

using ir::Function;

Function parsed(const std::string& text) {
  Function function = ir::parse("function main[mesh=\"none\", grains=8]" + text);
  ir::verify(function, "the test");
  return function;
}

std::int64_t planned_bytes(const Function& f) {
  return compile(f, {.is_donated = std::vector<bool>(f.inputs.size(), false),
                     .output_alias = std::vector<int>(f.outputs.size(), -1)})
      ->arena_bytes;
}

// --- cuts ----------------------------------------------------------------------------------------

struct Graph {
  struct Edge {
    std::size_t from;
    std::size_t to;
    std::int64_t capacity;
  };
  std::size_t num_nodes;
  std::vector<Edge> edges;

  std::int64_t cost(const std::vector<bool>& is_on_sink_side) const {
    std::int64_t sum = 0;
    for (const Edge& edge : edges) {
      if (!is_on_sink_side[edge.from] && is_on_sink_side[edge.to]) sum += edge.capacity;
    }
    return sum;
  }
};

Graph random_graph(std::minstd_rand& random) {
  Graph graph{.num_nodes = 2 + random() % 7, .edges = {}};
  for (std::size_t i = 0; i < 3 * graph.num_nodes; ++i) {
    graph.edges.push_back({.from = random() % graph.num_nodes,
                           .to = random() % graph.num_nodes,
                           .capacity = static_cast<std::int64_t>(random() % 6)});
  }
  return graph;
}

/// The cost of the cheapest cut, and the fewest nodes that such a cut has on the side of the sink.
std::pair<std::int64_t, std::int64_t> best_by_trying(const Graph& graph) {
  std::pair<std::int64_t, std::int64_t> best{MinCut::kUncut, 0};
  for (std::size_t bits = 0; bits < std::size_t{1} << graph.num_nodes; ++bits) {
    std::vector<bool> side;
    for (std::size_t node = 0; node < graph.num_nodes; ++node) side.push_back((bits >> node) & 1);
    if (side[MinCut::kSource] || !side[MinCut::kSink]) continue;
    best = std::min(best, {graph.cost(side), std::count(side.begin(), side.end(), true)});
  }
  return best;
}

TEST(MinCut, IsTheCheapestAndNearestToTheSink) {
  std::minstd_rand random(1);
  for (int i = 0; i < 300; ++i) {
    const Graph graph = random_graph(random);
    MinCut cut;
    for (std::size_t node = 2; node < graph.num_nodes; ++node) EXPECT_EQ(cut.add_node(), node);
    for (const auto& edge : graph.edges) cut.add_edge(edge.from, edge.to, edge.capacity);
    cut.solve();
    std::vector<bool> side;
    for (std::size_t node = 0; node < graph.num_nodes; ++node) {
      side.push_back(cut.is_on_sink_side(node));
    }
    EXPECT_EQ(std::pair(graph.cost(side), std::count(side.begin(), side.end(), true)),
              best_by_trying(graph));
  }
}

// --- barriers ------------------------------------------------------------------------------------

const char* const kTwoPhases = R"((%0: f32[8]<{}>, %1: f32[8]<{}>) {
  %2: f32[8]<{}> = exp %0
  %3: f32[8]<{}>, %4: f32[8]<{}> = optimization_barrier %2, %1
  %5: f32[8]<{}> = mul %3, %4
  %6: f32[8]<{}> = optimization_barrier %3
  %7: f32[8]<{}> = add %5, %6
  return %7
})";

TEST(Barriers, BeginPhases) {
  const Phased phased = without_barriers(parsed(kTwoPhases));
  EXPECT_EQ(phased.phases, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(phased.function.equations[2].operands[1], phased.function.equations[0].results[0]);
  // The last phase recomputes the product instead of reading it.
  EXPECT_EQ(host::fuse(phased.function, phased.phases).nodes.size(), 2U);
  EXPECT_EQ(host::fuse(phased.function).nodes.size(), 1U);
}

TEST(Barriers, LeaveNothingThatOnlyTheyRead) {
  const Phased phased = without_barriers(parsed(R"((%0: f32[8]<{}>, %1: f32[8]<{}>) {
  %2: f32[8]<{}> = exp %0
  %3: f32[8]<{}> = neg %2
  %4: f32[8]<{}>, %5: f32[8]<{}> = optimization_barrier %3, %1
  %6: f32[8]<{}> = mul %5, %5
  return %6
})"));
  EXPECT_EQ(phased.function.equations.size(), 1U);
  EXPECT_EQ(phased.phases, (std::vector<int>{1}));
  EXPECT_EQ(host::fuse(phased.function, phased.phases).nodes.size(), 1U);
}

TEST(Barriers, HoldWhatCrosses) {
  EXPECT_EQ(ir::print(ir::without_dead_code(with_barriers(without_barriers(parsed(kTwoPhases))))),
            R"(function main[mesh="none", grains=8](%0: f32[8]<{}>, %1: f32[8]<{}>) {
  %2: f32[8]<{}> = exp %0
  %3: f32[8]<{}> = optimization_barrier %2
  %4: f32[8]<{}> = mul %3, %1
  %5: f32[8]<{}>, %6: f32[8]<{}> = optimization_barrier %3, %4
  %7: f32[8]<{}> = add %6, %5
  return %7
}
)");
}

// --- peaks ---------------------------------------------------------------------------------------

/// Writes equations over arrays f32[64,64].
class Writer {
 public:
  explicit Writer(int num_inputs) : num_inputs_(num_inputs), next_(num_inputs) {}

  std::string emit(const std::string& equation, const std::string& dtype = "f32") {
    const std::string name = "%" + std::to_string(next_++);
    text_ += "  " + name + ": " + dtype + "[64,64]<{},{}> = " + equation + "\n";
    return name;
  }
  std::string dot(const std::string& a, const std::string& b, int from) {
    return emit("dot_general[lhs_batch=[], lhs_contract=[" + std::to_string(from) +
                "], rhs_batch=[], rhs_contract=[0]] " + a + ", " + b);
  }
  std::string mul(const std::string& a, const std::string& b) {
    return emit("mul " + a + ", " + b);
  }
  std::string add(const std::string& a, const std::string& b) {
    return emit("add " + a + ", " + b);
  }

  Function finish(const std::vector<std::string>& outputs) const {
    std::string inputs;
    for (int i = 0; i < num_inputs_; ++i) {
      inputs += (i > 0 ? ", %" : "%") + std::to_string(i) + ": f32[64,64]<{},{}>";
    }
    std::string returned;
    for (const std::string& name : outputs) returned += (returned.empty() ? "" : ", ") + name;
    return parsed("(" + inputs + ") {\n" + text_ + "  return " + returned + "\n}");
  }

 private:
  int num_inputs_;
  int next_;
  std::string text_;
};

/// `layers` times x = exp(x w) * x w, and the derivative of each with respect to w.
Function layers_and_derivative(int layers) {
  Writer w(2);
  std::vector<std::string> x = {"%0"};
  std::vector<std::string> products;
  for (int i = 0; i < layers; ++i) {
    products.push_back(w.dot(x.back(), "%1", 1));
    x.push_back(w.mul(products.back(), w.emit("exp " + products.back())));
  }
  std::string cotangent = x.back();
  std::vector<std::string> gradients;
  for (std::size_t i = products.size(); i-- > 0;) {
    const std::string e = w.emit("exp " + products[i]);
    cotangent = w.mul(cotangent, w.add(e, w.mul(products[i], e)));
    gradients.push_back(w.dot(x[i], cotangent, 0));
    cotangent = w.dot(cotangent, "%1", 1);
  }
  return w.finish(gradients);
}

/// `layers` times x = x + (exp(x w) * x w w < x_0), where the added term has one byte per element.
/// Then equations that read all those values as the derivative with respect to w would.
Function sums_and_derivative(int layers) {
  Writer w(2);
  std::vector<std::string> x = {"%0"};
  std::vector<std::string> products;
  for (int i = 0; i < layers; ++i) {
    products.push_back(w.dot(x.back(), "%1", 1));
    const std::string y = w.mul(products.back(), w.emit("exp " + products.back()));
    const std::string sign =
        w.emit("compare[direction=\"lt\"] " + w.dot(y, "%1", 1) + ", %0", "bool");
    x.push_back(w.add(x.back(), w.emit("convert[dtype=f32] " + sign)));
  }
  std::string cotangent = x.back();
  std::vector<std::string> gradients;
  for (std::size_t i = products.size(); i-- > 0;) {
    const std::string e = w.emit("exp " + products[i]);
    const std::string inner = w.mul(w.dot(cotangent, "%1", 1), w.mul(products[i], e));
    gradients.push_back(w.dot(x[i], inner, 0));
    gradients.push_back(w.dot(w.mul(products[i], e), cotangent, 0));
    cotangent = w.emit("sub " + cotangent + ", " + w.dot(inner, "%1", 1));
  }
  return w.finish(gradients);
}

const RecomputeOptions kSmall{.least_bytes = 0, .most_work = 1.0};

TEST(Recompute, HoldsOneValueOfEachLayer) {
  const std::int64_t array = 64 * 64 * 4;
  const Function f = layers_and_derivative(12);
  const Function again = recompute(f, kSmall);
  // Before: for each layer, x and one of its product with w, the exp or the slope. Now: only the
  // products.
  EXPECT_GE(planned_bytes(f), 22 * array);
  EXPECT_LE(planned_bytes(again), 15 * array);
  EXPECT_EQ(recompute(f), f);  // there is too little to gain
}

TEST(Recompute, GrowsWithTheProgramOnlyAsFarAsItMust) {
  const auto peak = [](int layers) {
    return pressure_of(without_barriers(recompute(layers_and_derivative(layers), kSmall))).peak;
  };
  EXPECT_LE(peak(24) - peak(12), std::int64_t{12} * 64 * 64 * 4);
}

TEST(Recompute, CostsNoMoreThanAllowed) {
  const Function f = layers_and_derivative(12);
  EXPECT_EQ(recompute(f, {.least_bytes = 0, .most_work = 0.0}), f);
}

TEST(Recompute, HoldsSumsThatAreNeededSoonAndLate) {
  // Each sum could be recomputed from smaller terms, but the first sum to be read needs them all.
  const Function f = sums_and_derivative(40);
  EXPECT_LE(planned_bytes(recompute(f, kSmall)), planned_bytes(f) * 3 / 4);
}

TEST(Recompute, ReachesIntoLoops) {
  const Function body = layers_and_derivative(12);
  Function f = parsed(R"((%0: f32[64,64]<{},{}>, %1: f32[64,64]<{},{}>) {
  %2: f32[64,64]<{},{}> = scan[body={(%0: f32[64,64]<{},{}>, %1: f32[64,64]<{},{}>) {
    return %1
  }}, length=3, num_carry=1, num_consts=1, reverse=false] %0, %1
  return %2
})");
  Function step = body;
  ir::Builder builder(step);
  for (std::size_t i = 1; i < step.outputs.size(); ++i) {
    step.outputs[0] = builder.emit("add", {}, {step.outputs[0], step.outputs[i]});
    step.values[step.outputs[0]].sharding = replicated_sharding(2);
  }
  step.outputs.resize(1);
  f.equations[0].attributes.set("body", ir::Bodies{{std::make_shared<const Function>(step)}});
  const Function again =
      ir::with_changed_bodies(f, [](const Function& inner) { return recompute(inner, kSmall); });
  EXPECT_NE(again, f);
  EXPECT_LT(planned_bytes(again), planned_bytes(f));
}

TEST(Passes, AreOptionalAndNeedShardings) {
  const std::vector<ir::Pass> all = passes();
  const Function unsplit = parsed("(%0: f32[8]) {\n  %1: f32[8] = exp %0\n  return %1\n}");
  ASSERT_EQ(all.size(), 4U);
  for (const ir::Pass& pass : all) {
    EXPECT_TRUE(pass.is_optional);
    EXPECT_THROW(pass.takes(unsplit, "the test"), InternalError);
  }
}

}  // namespace
}  // namespace tessera::compile
