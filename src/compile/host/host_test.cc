// Fusion and memory planning. Checks their guarantees on handwritten and on random programs.
#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <optional>
#include <random>
#include <tuple>

#include "compile/host/fuse/fuse.h"
#include "compile/host/fuse/node_graph.h"
#include "compile/host/lower.h"
#include "compile/host/plan/plan.h"
#include "compile/host/plan/plan_memory.h"
#include "ir/text.h"
#include "partition/test_programs.h"

namespace tessera::compile::host {
namespace {

using partition::testing::MlpStep;
using partition::testing::on_one_device;
using partition::testing::Program;

CompileOptions no_donation(const Function& function) {
  return {.is_donated = std::vector<bool>(function.inputs.size(), false),
          .output_alias = std::vector<int>(function.outputs.size(), -1),
          .target = {.num_workers = 3}};
}

// --- fusion --------------------------------------------------------------------------------------

/// Describes the nodes in order by the ops of each, such as `exp add | reduce_sum | div`.
std::string nodes_of(const Function& function) {
  std::string text;
  for (const Node& node : fuse(function).nodes) {
    text += text.empty() ? "" : " |";
    for (std::size_t index : node.equations) {
      text += text.empty() ? "" : " ";
      text += *function.equations[index].op->name;
    }
  }
  return text;
}

std::int64_t num_buffers(const Fusion& fusion) {
  return std::count(fusion.needs_buffer.begin(), fusion.needs_buffer.end(), true);
}

TEST(Fuse, ElementwiseChainIsOneNodeWithInlineConstants) {
  Program p{Mesh()};
  const ValueId x = p.input({4, 8});
  const ValueId y = ops::exp(p.b, p.scaled(p.add(x, p.full(3, {4, 8})), 0.5));
  const Function f = on_one_device(p, {p.relu(y)});
  const Fusion fusion = fuse(f);
  EXPECT_EQ(nodes_of(f), "add mul exp max");
  EXPECT_TRUE(fusion.nodes[0].is_region);
  EXPECT_EQ(num_buffers(fusion), 2);  // x and the result
  for (const Equation& equation : f.equations) {
    const bool is_constant = *equation.op->name == "constant";
    EXPECT_EQ(fusion.splat[equation.results[0]].has_value(), is_constant);
  }
  // There is one task, which reads x and writes the result.
  const HostProgram program = lower(f);
  ASSERT_EQ(program.instructions.size(), 1U);
  ASSERT_EQ(program.instructions[0].tasks.size(), 1U);
  EXPECT_EQ(program.instructions[0].tasks[0].reads, (std::vector<TileRef>{{f.inputs[0], 0}}));
  EXPECT_EQ(program.instructions[0].tasks[0].writes, (std::vector<TileRef>{{f.outputs[0], 0}}));
}

TEST(Fuse, DiamondAroundAReductionHasNoCycle) {
  Program p{Mesh()};
  const ValueId e = ops::exp(p.b, p.input({4, 8}));
  const ValueId total = p.sum(e, {0});
  const ValueId wide = p.broadcast(total, {1}, {4, 8});
  const Function f = on_one_device(p, {ops::div(p.b, e, wide)});
  // Sums of columns are known only once all rows are.
  EXPECT_EQ(nodes_of(f), "exp reduce_sum | div");
}

TEST(Fuse, ANodeThatMovesForwardKeepsTheOrder) {
  NodeGraph graph(5);
  graph.append(0, {}, {});
  graph.append(1, {}, {0});
  graph.append(2, {}, {});
  graph.append(3, {2}, {});
  ASSERT_TRUE(graph.merge(3, 0));  // 2 moves before it, and 1 stays behind
  graph.append(4, {3}, {1});
  EXPECT_FALSE(graph.merge(3, 4));  // 4 reads 1, which reads 0
}

TEST(Fuse, RowsAreReducedAmongTheElementwiseWorkAroundThem) {
  Program p{Mesh()};
  const ValueId e = ops::exp(p.b, p.input({4, 8}));
  const ValueId total = p.b.emit("reshape", {{"shape", Shape{4, 1}}}, {p.sum(e, {1})});
  const ValueId scaled = p.scaled(total, 2);
  const Function f =
      on_one_device(p, {ops::div(p.b, e, p.broadcast(scaled, {0, 1}, {4, 8})), scaled});
  const Fusion fusion = fuse(f);
  EXPECT_EQ(nodes_of(f), "exp reduce_sum mul div");
  EXPECT_TRUE(fusion.nodes[0].has_rows);
  EXPECT_EQ(num_buffers(fusion), 3);  // the input and the results
}

TEST(Fuse, RowsOfNoElementsAreComputedByThemselves) {
  Program p{Mesh()};
  const ValueId e = ops::exp(p.b, p.input({4}));
  const Function f = on_one_device(p, {p.add(p.input({4, 0}), p.broadcast(e, {0}, {4, 0})), e});
  EXPECT_EQ(nodes_of(f), "exp | add");
}

TEST(Fuse, DiamondThroughAViewHasNoCycle) {
  // x + transpose(x) reads all of x before the first element is known.
  Program p{Mesh()};
  const ValueId e = ops::exp(p.b, p.input({8, 8}));
  const Function f = on_one_device(p, {p.add(e, p.transpose(e, {1, 0}))});
  EXPECT_EQ(nodes_of(f), "exp | add");
}

TEST(Fuse, IndependentBranchesJoinWhereTheyMeet) {
  Program p{Mesh()};
  const ValueId x = p.input({4, 8});
  const ValueId y = p.input({4, 8});
  const ValueId a = ops::exp(p.b, x);
  const ValueId b = p.b.emit("tanh", {}, {y});
  const Function f = on_one_device(p, {p.mul(a, b)});
  EXPECT_EQ(nodes_of(f), "exp tanh mul");
  EXPECT_EQ(num_buffers(fuse(f)), 3);
}

TEST(Fuse, BitsReadAsAnotherDTypeStayInTheirRegion) {
  Program p{Mesh()};
  const ValueId key = p.b.add_input({DType::u32, {2}});
  const ValueId bits = p.b.emit("random_bits", {{"shape", Shape{4, 8}}}, {key});
  const ValueId number = ops::bitcast(p.b, bits, DType::f32);
  const ValueId y = p.mul(p.input({4, 8}), number);
  const Function f = on_one_device(p, {y});
  EXPECT_EQ(nodes_of(f), "random_bits mul");
  EXPECT_EQ(num_buffers(fuse(f)), 3);  // the inputs and the result
  // The elements of a slice are at other indices.
  const ValueId part =
      ops::slice_dim(p.b, ops::bitcast(p.b, ops::exp(p.b, y), DType::u32), 0, 2, 4);
  const ValueId shifted = p.b.emit("not", {}, {part});
  EXPECT_EQ(nodes_of(on_one_device(p, {shifted})), "random_bits mul exp | not");
}

TEST(Fuse, OtherShapesDoNotJoin) {
  Program p{Mesh()};
  const ValueId x = p.input({4, 8});
  const ValueId a = ops::exp(p.b, p.sum(x, {1}));
  const ValueId b = ops::exp(p.b, p.sum(x, {0}));
  // Both sums read x.
  EXPECT_EQ(nodes_of(on_one_device(p, {a, b})), "reduce_sum exp reduce_sum | exp");
}

TEST(Fuse, SumsOfColumnsJoinWhatReadsTheSameArray) {
  Program p{Mesh()};
  const ValueId x = p.input({32, 32});
  const ValueId squares = p.sum(p.mul(x, x), {0});
  const ValueId total = p.sum(x, {0});
  // A row of x has the same shape as a column.
  const ValueId rows = ops::exp(p.b, total);
  const Function f = on_one_device(p, {squares, rows, p.sum(ops::exp(p.b, x), {1})});
  EXPECT_EQ(nodes_of(f), "mul reduce_sum reduce_sum exp reduce_sum | exp");
  // Eight grains are not enough for nine threads.
  const Fusion fusion = fuse(f, {}, false, 9);
  EXPECT_EQ(fusion.nodes.size(), 5U);
}

TEST(Fuse, ViewsTakeNoMemoryUntilTheyAreOutputs) {
  Program p{Mesh()};
  const ValueId x = p.input({4, 8});
  const ValueId t = p.transpose(x, {1, 0});
  const ValueId part = ops::slice_dim(p.b, t, 0, 2, 6);
  const ValueId back = ops::reverse(p.b, part, {1});
  const ValueId wide = p.broadcast(back, {0, 2}, {4, 3, 4});
  const ValueId y = ops::exp(p.b, wide);
  const Function f = on_one_device(p, {y});
  const Fusion fusion = fuse(f);
  EXPECT_EQ(nodes_of(f), "exp");
  EXPECT_EQ(num_buffers(fusion), 2);
  EXPECT_EQ(std::count(fusion.is_view.begin(), fusion.is_view.end(), true), 4);
  EXPECT_EQ(plan_memory(lower(f), no_donation(f)).arena_bytes, 0);

  const Function g = on_one_device(p, {y, t});
  EXPECT_EQ(num_buffers(fuse(g)), 3);
  EXPECT_FALSE(fuse(g).is_view[g.outputs[1]]);
}

TEST(Fuse, ProductsWriteWhatATransposeGives) {
  // Attention's weighted sums over positions, [batch, head, position, 3], written as rows of all
  // heads.
  Program p{Mesh()};
  const ValueId product = ops::dot_general(
      p.b, p.input({2, 4, 5, 6}), p.input({2, 4, 6, 3}),
      {.lhs_contract = {3}, .rhs_contract = {2}, .lhs_batch = {0, 1}, .rhs_batch = {0, 1}});
  const ValueId rows = p.transpose(product, {0, 2, 1, 3});
  const ValueId flat = p.b.emit("reshape", {{"shape", Shape{2, 5, 12}}}, {rows});
  const Function f = on_one_device(p, {ops::exp(p.b, flat)});
  EXPECT_EQ(nodes_of(f), "dot_general | exp");
  EXPECT_EQ(num_buffers(fuse(f)), 4);  // the inputs, the product and the result
  // If another equation reads the product itself, the product keeps its own order.
  const Function g = on_one_device(p, {ops::exp(p.b, flat), ops::exp(p.b, product)});
  EXPECT_EQ(nodes_of(g), "dot_general | transpose | exp | exp");
  // The columns must come from one operand and be adjacent.
  const ValueId columns_first = p.transpose(product, {3, 0, 1, 2});
  EXPECT_EQ(fuse(on_one_device(p, {ops::exp(p.b, columns_first)})).nodes.size(), 2U);
  const ValueId heads_last = p.transpose(product, {0, 2, 3, 1});
  const ValueId split = p.b.emit("reshape", {{"shape", Shape{2, 60}}}, {heads_last});
  EXPECT_EQ(nodes_of(on_one_device(p, {ops::exp(p.b, split)})), "dot_general | transpose | exp");
}

// --- random programs -----------------------------------------------------------------------------

/// Elementwise ops, views, reductions and contractions over [8, 8] in random order.
class RandomProgram {
 public:
  explicit RandomProgram(std::uint32_t seed) : random_(seed) {
    for (int i = 0; i < 3; ++i) values_.push_back(program_.input(kShape));
    key_ = program_.b.add_input({DType::u32, {2}});
    for (int i = 0; i < 60; ++i) values_.push_back(next());
  }

  /// A function of the last values and some others. Omits outputs that repeat and outputs that are
  /// inputs.
  Function function() {
    std::vector<ValueId> outputs = {values_.back(), values_[values_.size() - 2]};
    if (outputs[0] == outputs[1]) outputs.pop_back();
    outputs.push_back(ops::exp(program_.b, pick()));
    return on_one_device(program_, outputs);
  }

 private:
  ValueId pick() {
    return values_[values_.size() - 1 - below(std::min<std::size_t>(values_.size(), 9))];
  }
  std::size_t below(std::size_t n) { return random_() % n; }

  ValueId next() {
    Program& p = program_;
    const ValueId x = pick();
    switch (below(12)) {
      case 0:
        return p.broadcast(p.sum(x, {1}), {0}, kShape);
      case 1:
        return p.broadcast(below(2) == 0 ? p.largest(x, {0}) : p.sum(x, {0}), {1}, kShape);
      case 2:
        return ops::exp(p.b, p.transpose(x, {1, 0}));
      case 3:
        return p.add(p.transpose(pick(), {1, 0}), x);
      case 4:
        return p.dot(x, pick(), {1}, {0});
      case 5:
        return p.add(ops::reverse(p.b, x, {0}), pick());
      case 6:
        return p.reshape(p.mul(p.reshape(x, {64}), p.reshape(pick(), {64})), kShape);
      case 7:
        return random(x);
      case 8:
        return p.scaled(x, 0.5);
      default:
        return below(2) == 0 ? p.add(x, pick()) : p.mul(x, pick());
    }
  }

  /// Random numbers whose key comes from the input or from x.
  ValueId random(ValueId x) {
    Program& p = program_;
    ValueId key = key_;
    if (below(2) == 0) {
      const ValueId two = ops::slice_dim(p.b, p.sum(x, {0}), 0, 0, 2);
      key = ops::bitcast(p.b, ops::exp(p.b, two), DType::u32);
    }
    const ValueId bits = p.b.emit("random_bits", {{"shape", kShape}}, {key});
    return p.mul(ops::convert(p.b, bits, DType::f32), x);
  }

  const Shape kShape = {8, 8};
  std::minstd_rand random_;
  Program program_{Mesh()};
  std::vector<ValueId> values_;
  ValueId key_;
};

/// The equation that computes the value which `id` reads, or kNoEquation.
std::size_t source_of(const Fusion& fusion, ValueId id) {
  id = fusion.readings[id].base;
  return fusion.splat[id] ? kNoEquation : fusion.definition[id];
}

/// Checks that an equation of a node finds its operands: in the node, or stored by an earlier one.
void expect_operands(const Function& f, const Fusion& fusion, const std::vector<std::size_t>& home,
                     std::size_t n, std::size_t index) {
  const std::vector<std::size_t>& own = fusion.nodes[n].equations;
  for (ValueId id : f.equations[index].operands) {
    const std::size_t source = source_of(fusion, id);
    if (source == kNoEquation) continue;
    const bool is_viewed =
        reading_within(f, fusion, f.equations[index], id) == Reading::Kind::other;
    const bool is_here = !is_viewed && std::binary_search(own.begin(), own.end(), source);
    ASSERT_TRUE(is_here || fusion.needs_buffer[fusion.readings[id].base]);
    ASSERT_TRUE(is_here || home[source] < n) << "a cycle";
  }
}

TEST(Fuse, RandomProgramsStayInOrderAndStoreEveryValueOnce) {
  std::size_t largest = 0;
  std::size_t num_repeated = 0;
  for (std::uint32_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Function f = RandomProgram(seed).function();
    const Fusion fusion = fuse(f, {}, false, seed % 2 == 0 ? 1 : 8);
    std::vector<std::size_t> home(f.equations.size(), kNoEquation);  // the node that stores it
    std::vector<std::size_t> num_nodes(f.equations.size(), 0);
    for (std::size_t n = 0; n < fusion.nodes.size(); ++n) {
      const Node& node = fusion.nodes[n];
      ASSERT_TRUE(std::is_sorted(node.equations.begin(), node.equations.end()));
      ASSERT_TRUE(node.is_region || node.equations.size() == 1);
      largest = std::max(largest, node.equations.size());
      for (std::size_t index : node.equations) {
        if (++num_nodes[index] > 1) ++num_repeated;
        if (!fusion.needs_buffer[f.equations[index].results[0]]) continue;
        ASSERT_EQ(home[index], kNoEquation);
        home[index] = n;
      }
    }
    for (std::size_t i = 0; i < f.equations.size(); ++i) {
      const ValueId result = f.equations[i].results[0];
      const bool is_stored = fusion.needs_buffer[result] && !fusion.is_view[result];
      ASSERT_EQ(home[i] != kNoEquation, is_stored && !fusion.splat[result]);
    }
    for (std::size_t n = 0; n < fusion.nodes.size(); ++n) {
      for (std::size_t index : fusion.nodes[n].equations) {
        expect_operands(f, fusion, home, n, index);
        if (HasFatalFailure()) return;
      }
    }
  }
  EXPECT_GT(largest, 5U);
  EXPECT_GT(num_repeated, 20U);
}

TEST(Fuse, AConstantThatAProductReadsIsStoredAsItWasMade) {
  Program p{Mesh()};
  const ValueId x = p.input({8, 4, 3});
  const ValueId made = p.full(2, {4, 3, 8});
  const Function f = on_one_device(p, {p.batched_dot(x, p.transpose(made, {2, 0, 1}), 1, 1, {0})});
  const Fusion fusion = fuse(f);
  EXPECT_EQ(nodes_of(f), "constant | dot_general");
  EXPECT_EQ(*f.equations[0].op->name, "constant");
  EXPECT_FALSE(fusion.splat[f.equations[0].results[0]]);
  EXPECT_EQ(*f.equations[1].op->name, "transpose");
  EXPECT_EQ(fusion.readings[f.equations[1].results[0]].base, f.equations[0].results[0]);
}

TEST(Fuse, AConstantWithOtherReadersIsStoredForTheProductOnly) {
  Program p{Mesh()};
  const ValueId x = p.input({8, 4, 3});
  const ValueId made = p.full(2, {4, 3, 8});
  const ValueId product = p.batched_dot(x, p.transpose(made, {2, 0, 1}), 1, 1, {0});
  const Function f = on_one_device(p, {product, p.add(p.input({4, 3, 8}), made)});
  const Fusion fusion = fuse(f);
  EXPECT_EQ(nodes_of(f), "transpose | dot_general | add");
  EXPECT_TRUE(fusion.splat[f.equations[0].results[0]]);
}

TEST(Fuse, CheapValuesAreRepeatedIfThatReadsNoMore) {
  Program p{Mesh()};
  const ValueId x = p.input({64, 64});
  const ValueId y = p.input({64, 64});
  const auto centered_by = [&](ValueId from) {
    const ValueId mean = p.broadcast(p.sum(from, {0}), {1}, {64, 64});
    return p.b.emit("sub", {}, {from, mean});
  };
  // Nodes read x instead of the difference. Its square is no longer cheap to make from x.
  const ValueId centered = centered_by(x);
  const Function f = on_one_device(p, {centered_by(p.mul(centered, centered))});
  EXPECT_EQ(nodes_of(f), "reduce_sum | sub mul reduce_sum | sub mul sub");
  // Reading the sum of two arrays is one read instead of two.
  const Function g = on_one_device(p, {centered_by(p.add(x, y))});
  EXPECT_EQ(nodes_of(g), "add reduce_sum | sub");
  // An exponential is not computed again either.
  const Function h = on_one_device(p, {centered_by(ops::exp(p.b, x))});
  EXPECT_EQ(nodes_of(h), "exp reduce_sum | sub");
}

// --- memory --------------------------------------------------------------------------------------

/// Describes what is wrong with a plan. Finds nothing if, in every order of tasks that respects the
/// dependencies, each task reads the tiles that it expects.
class PlanCheck {
 public:
  PlanCheck(const HostProgram& program, const run::Executable& executable)
      : program_(program), executable_(executable) {
    for (const HostInstruction& instruction : program.instructions) {
      for (const TileTask& task : instruction.tasks) tasks_.push_back(&task);
    }
    find_ancestors();
    for (std::size_t id = 0; id < tasks_.size() && fault_.empty(); ++id) visit(id);
    if (fault_.empty()) check_outputs();
  }
  const std::string& fault() const { return fault_; }

 private:
  /// 64 bytes of memory: the tile that lies there (none for scratch), who wrote it and who has read
  /// it since.
  struct Line {
    std::optional<TileRef> tile;
    std::vector<std::size_t> writer;  // none for an input
    std::vector<std::size_t> readers;
  };
  using LineKey = std::tuple<int, std::uint32_t, std::uint32_t, std::int64_t>;

  void find_ancestors() {
    ancestors_.assign(tasks_.size(), std::vector<bool>(tasks_.size(), false));
    std::vector<std::uint32_t> arrived(tasks_.size(), 0);
    for (std::size_t id = 0; id < tasks_.size(); ++id) {
      if (executable_.tasks[id].num_predecessors != arrived[id]) fault_ = "wrong predecessors";
      for (std::uint32_t next : executable_.tasks[id].successors) {
        if (next <= id) fault_ = "a dependency points back";
        arrived[next] += 1;
        for (std::size_t i = 0; i < id; ++i) {
          if (ancestors_[id][i]) ancestors_[next][i] = true;
        }
        ancestors_[next][id] = true;
      }
    }
  }

  std::int64_t bytes_of(const TileRef& ref) const {
    return tile_bytes(*program_.function, program_.layouts[ref.value], ref.value, ref.tile);
  }

  /// The lines under a tile. An output with an alias lies in the buffers of that input.
  std::vector<Line*> lines(const run::Place& place, std::int64_t bytes) {
    int space = static_cast<int>(place.space);
    std::uint32_t port = place.port;
    if (place.space == run::Place::Space::output && executable_.outputs[port].alias >= 0) {
      space = static_cast<int>(run::Place::Space::input);
      port = static_cast<std::uint32_t>(executable_.outputs[port].alias);
    }
    if (place.space == run::Place::Space::arena && place.offset + bytes > executable_.arena_bytes) {
      fault_ = "a tile beyond the arena";
    }
    std::vector<Line*> result;
    for (std::int64_t at = place.offset; at < place.offset + bytes; at += 64) {
      result.push_back(&lines_[{space, port, place.tile, at / 64}]);
    }
    return result;
  }

  bool are_before(const std::vector<std::size_t>& users, std::size_t id) const {
    return std::all_of(users.begin(), users.end(),
                       [&](std::size_t user) { return user == id || ancestors_[id][user]; });
  }

  void visit(std::size_t id) {
    const TileTask& task = *tasks_[id];
    const auto& places = executable_.tasks[id].places;
    for (std::size_t i = 0; i < task.reads.size(); ++i) {
      const run::Place& place = executable_.places[places[i]];
      for (Line* line : lines(place, bytes_of(task.reads[i]))) {
        if (!line->tile && place.space == run::Place::Space::input) line->tile = task.reads[i];
        if (line->tile != task.reads[i]) fault_ = "a tile was overwritten before its last read";
        if (!are_before(line->writer, id)) fault_ = "a read may come before its write";
        line->readers.push_back(id);
      }
    }
    const std::size_t first_scratch = task.reads.size() + task.writes.size();
    if (places.size() != first_scratch + task.scratch.size()) fault_ = "not a place per buffer";
    for (std::size_t i = 0; i < task.writes.size(); ++i) {
      const std::uint32_t place = places[task.reads.size() + i];
      overwrite(id, place, bytes_of(task.writes[i]), task.writes[i]);
    }
    for (std::size_t i = 0; i < task.scratch.size(); ++i) {
      check_scratch(id, places, first_scratch + i);
      overwrite(id, places[first_scratch + i], task.scratch[i], std::nullopt);
    }
  }

  void overwrite(std::size_t id, std::uint32_t place, std::int64_t bytes,
                 std::optional<TileRef> tile) {
    for (Line* line : lines(executable_.places[place], bytes)) {
      if (!are_before(line->writer, id) || !are_before(line->readers, id)) {
        fault_ = "a write may come while the old tile is in use";
      }
      *line = {tile, {id}, {}};
    }
  }

  /// Scratch overlaps no other buffer of its task.
  void check_scratch(std::size_t id, const std::vector<std::uint32_t>& places, std::size_t which) {
    const TileTask& task = *tasks_[id];
    const auto bytes = [&](std::size_t i) {
      if (i < task.reads.size()) return bytes_of(task.reads[i]);
      i -= task.reads.size();
      return i < task.writes.size() ? bytes_of(task.writes[i])
                                    : task.scratch[i - task.writes.size()];
    };
    const std::vector<Line*> own = lines(executable_.places[places[which]], bytes(which));
    for (std::size_t i = 0; i < which; ++i) {
      for (Line* line : lines(executable_.places[places[i]], bytes(i))) {
        if (std::count(own.begin(), own.end(), line) != 0) fault_ = "scratch in another buffer";
      }
    }
  }

  /// At the end, every output holds its value.
  void check_outputs() {
    const std::vector<ValueId>& outputs = program_.function->outputs;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      for (std::int64_t t = 0; t < program_.layouts[outputs[i]].num_tiles(); ++t) {
        const TileRef ref{outputs[i], t};
        const run::Place place{run::Place::Space::output, static_cast<std::uint32_t>(i),
                               static_cast<std::uint32_t>(t)};
        for (Line* line : lines(place, bytes_of(ref))) {
          if (line->tile != ref) fault_ = "an output is not what was asked for";
        }
      }
    }
  }

  const HostProgram& program_;
  const run::Executable& executable_;
  std::vector<const TileTask*> tasks_;
  std::vector<std::vector<bool>> ancestors_;
  std::map<LineKey, Line> lines_;
  std::string fault_;
};

/// Plans a function and checks the plan, in program order and in another order.
run::Executable checked_plan(const Function& function, const CompileOptions& options) {
  const HostProgram program = lower(function);
  run::Executable executable = plan_memory(program, options);
  EXPECT_EQ(PlanCheck(program, executable).fault(), "");
  const HostProgram ordered = in_order(lower(function), executable);
  EXPECT_EQ(PlanCheck(ordered, plan_memory(ordered, options)).fault(), "");
  return executable;
}

/// Repeats y = y * (sums of the columns of y); some memory must be used twice.
Function chain(int length) {
  Program p{Mesh()};
  ValueId y = p.input({64, 64});
  for (int i = 0; i < length; ++i) {
    const ValueId total = p.sum(y, {0});
    y = p.mul(y, p.broadcast(total, {1}, {64, 64}));
  }
  return on_one_device(p, {y});
}

TEST(Lower, EveryKernelThatARecordNamesHasOneLowering) {
  for (const ops::OpRecord* op : ops::all_ops()) {
    if (*op->pattern != ops::Pattern::opaque) continue;
    ir::Equation equation;
    equation.op = op;
    EXPECT_NO_THROW(reads_dense(equation)) << *op->name;
  }
}

TEST(Lower, PartsOfAReductionShareTheirScratch) {
  const Function f = ir::parse(R"(function main[mesh="none", grains=8](%0: f32[65536,64]<{},{}>) {
  %1: f32[64]<{}> = reduce_sum[dims=[0]] %0
  return %1
})");
  LowerOptions options;
  options.target.num_workers = 4;
  const HostProgram program = lower(f, options);
  const TileTask& task = program.instructions.at(0).tasks.at(0);
  EXPECT_GT(task.kernel->num_parts(), 1);
  ASSERT_EQ(task.scratch.size(), 1U);
  EXPECT_GT(task.scratch[0], 0);
  // There is no additional scratch per thread.
  EXPECT_EQ(task.kernel->scratch_bytes(), 0);
}

TEST(PlanMemory, PeakOfAChainDoesNotGrow) {
  const Function few = chain(20);
  const Function many = chain(60);
  const run::Executable small = checked_plan(few, no_donation(few));
  const run::Executable large = checked_plan(many, no_donation(many));
  EXPECT_EQ(small.arena_bytes, large.arena_bytes);
  EXPECT_EQ(small.device_peak_bytes, large.device_peak_bytes);
  // The arena holds the sums. The array in between lies in the memory of the output.
  EXPECT_EQ(large.dead_ranges.size(), run::kIsPoisoned ? 60U : 0U);
  EXPECT_LE(large.arena_bytes, 6 * 64 * 4);
  constexpr std::int64_t kArray = 64 * 64 * 4;
  // The planned peak counts what an in-place write reads and what it writes.
  EXPECT_LE(large.device_peak_bytes, large.arena_bytes + 3 * kArray);
}

TEST(PlanMemory, TheCheckFindsPlantedFaults) {
  const Function f = chain(12);
  const HostProgram program = lower(f);
  const run::Executable good = plan_memory(program, no_donation(f));
  ASSERT_EQ(PlanCheck(program, good).fault(), "");
  int num_edges = 0;
  int num_found = 0;
  for (std::size_t id = 0; id < good.tasks.size(); ++id) {
    for (std::size_t i = 0; i < good.tasks[id].successors.size(); ++i) {
      run::Executable bad = good;
      auto& successors = bad.tasks[id].successors;
      bad.tasks[successors[i]].num_predecessors -= 1;
      successors.erase(successors.begin() + static_cast<std::ptrdiff_t>(i));
      num_edges += 1;
      num_found += PlanCheck(program, bad).fault().empty() ? 0 : 1;
    }
  }
  // An edge is redundant if a longer path connects its ends. Edges between neighbours are not
  // redundant.
  EXPECT_GE(num_edges, 12);
  EXPECT_GE(num_found, 11);
  run::Executable same_place = good;
  for (run::Place& place : same_place.places) place.offset = 0;
  EXPECT_NE(PlanCheck(program, same_place).fault(), "");
}

/// An update of weights and momentum by a gradient; inputs x, error, weights, momentum.
TEST(PlanMemory, AnOptimiserUpdatesDonatedBuffersInPlace) {
  Program p{Mesh()};
  const ValueId x = p.input({16, 64});
  const ValueId error = p.input({16, 32});
  const ValueId w = p.input({64, 32});
  const ValueId m = p.input({64, 32});
  const ValueId gradient = p.dot(x, error, {0}, {0});
  const ValueId moment = p.add(p.scaled(m, 0.9), gradient);
  const ValueId loss = p.sum(p.mul(w, w), {0, 1});  // reads the weights before they are updated
  const Function f = on_one_device(p, {loss, p.sub(w, p.scaled(moment, 0.1)), moment});
  CompileOptions options{.is_donated = {false, false, true, true}, .output_alias = {-1, 2, 3}};
  const run::Executable in_place = checked_plan(f, options);
  EXPECT_EQ(in_place.outputs[0].alias, -1);
  EXPECT_EQ(in_place.outputs[1].alias, 2);
  EXPECT_EQ(in_place.outputs[2].alias, 3);
  EXPECT_TRUE(in_place.inputs[2].is_donated && in_place.inputs[3].is_donated);
  EXPECT_FALSE(in_place.inputs[0].is_donated);
  constexpr std::int64_t kWeights = 64 * 32 * 4;
  const run::Executable apart = checked_plan(f, no_donation(f));
  EXPECT_EQ(apart.outputs[1].alias, -1);
  // The gradient lies in the memory of a result if the result has its own memory.
  EXPECT_EQ(apart.device_peak_bytes - in_place.device_peak_bytes, kWeights);
}

TEST(PlanMemory, ADonatedBufferThatIsReadLaterIsNotReused) {
  Program p{Mesh()};
  const ValueId w = p.input({32, 32});
  const ValueId twice = p.scaled(w, 2);
  const Function read_later = on_one_device(p, {twice, p.dot(twice, w, {1}, {0})});
  CompileOptions options{.is_donated = {true}, .output_alias = {0, -1}};
  EXPECT_EQ(checked_plan(read_later, options).outputs[0].alias, -1);
  // Element (i, j) needs element (j, i), which may have been overwritten.
  const Function crossed = on_one_device(p, {p.add(w, p.transpose(w, {1, 0}))});
  EXPECT_EQ(checked_plan(crossed, {.is_donated = {true}, .output_alias = {0}}).outputs[0].alias,
            -1);
  const Function straight = on_one_device(p, {twice});
  EXPECT_EQ(checked_plan(straight, {.is_donated = {true}, .output_alias = {0}}).outputs[0].alias,
            0);
}

TEST(PlanMemory, ATileThatTwoTasksReadIsNotOverwrittenByOne) {
  // Both tasks of the second instruction read all of %1, and each could overwrite it.
  const Function f = ir::parse(R"(function main[mesh="data=2", grains=8](%0: f32[3]<{}>) {
  %1: f32[3]<{}> = neg %0
  %2: f32[6]<{data}> = concatenate[dim=0] %1, %1
  %3: f32[6]<{data}> = neg %2
  return %3
})");
  HostProgram program{.function = &f, .layouts = layouts_of(f), .instructions = {}};
  program.instructions.resize(3);
  program.instructions[0].tasks = {
      {.kernel = nullptr, .reads = {{0, 0}}, .writes = {{1, 0}}, .may_share = {}}};
  for (std::int64_t tile : {0, 1}) {
    program.instructions[1].tasks.push_back(
        {.kernel = nullptr, .reads = {{1, 0}}, .writes = {{2, tile}}, .may_share = {{0, 0}}});
    program.instructions[2].tasks.push_back(
        {.kernel = nullptr, .reads = {{2, tile}}, .writes = {{3, tile}}, .may_share = {{0, 0}}});
  }
  const run::Executable plan = plan_memory(program, no_donation(f));
  EXPECT_EQ(PlanCheck(program, plan).fault(), "");
  // The arena holds %1; %2 lies in the memory of the result.
  EXPECT_EQ(plan.arena_bytes, 64);
}

TEST(PlanMemory, ATileThatAnOpReadsTwiceIsNotOverwritten) {
  // Rows of the updates are read after rows of the result are written.
  const Function f = ir::parse(R"(function
main[mesh="none", grains=8](%0: f32[4]<{}>, %1: i32[4]<{}>, %2: f32[4]<{}>) {
  %3: f32[4]<{}> = scatter[dim=0] %0, %1, %0
  %4: f32[4]<{}> = scatter[dim=0] %2, %1, %3
  return %3, %4
})");
  const CompileOptions options{.is_donated = {true, false, true}, .output_alias = {0, 2}};
  const run::Executable plan = checked_plan(f, options);
  EXPECT_EQ(plan.outputs[0].alias, -1);
  EXPECT_EQ(plan.outputs[1].alias, 2);
}

TEST(PlanMemory, ScratchLivesForOneInstruction) {
  const Function f = ir::parse(R"(function main[mesh="data=2", grains=8](%0: f32[60]<{data}>) {
  %1: f32[60]<{data}> = neg %0
  %2: f32[60]<{data}> = neg %1
  %3: f32[60]<{data}> = neg %2
  return %3
})");
  HostProgram program{.function = &f, .layouts = layouts_of(f), .instructions = {}};
  for (ValueId id : {0U, 1U, 2U}) {
    TileTask task{.kernel = nullptr, .reads = {}, .writes = {}, .may_share = {}};
    for (std::int64_t tile : {0, 1}) {
      task.reads.push_back({id, tile});
      task.writes.push_back({id + 1, tile});
    }
    task.scratch = {1000, 1, 0};
    task.device_scratch_bytes = 600;
    program.instructions.push_back({.info = {}, .tasks = {task}});
  }
  const run::Executable plan = plan_memory(program, no_donation(f));
  EXPECT_EQ(PlanCheck(program, plan).fault(), "");
  // Two values of two tiles, and the scratch of one task.
  EXPECT_EQ(plan.arena_bytes, 4 * 128 + 1024 + 2 * 64);
  EXPECT_EQ(plan.device_arena_bytes, 2 * 120 + 600);
  EXPECT_EQ(plan.device_peak_bytes, 4 * 120 + 600);
}

TEST(PlanMemory, RandomProgramsOnOneDevice) {
  int num_aliases = 0;
  for (std::uint32_t seed = 1; seed <= 200; ++seed) {
    const Function f = RandomProgram(seed).function();
    CompileOptions options = no_donation(f);
    for (std::size_t i = 0; i < f.outputs.size(); ++i) {
      options.is_donated[i] = true;
      options.output_alias[i] = static_cast<int>(i);
    }
    const run::Executable executable = checked_plan(f, options);
    for (const run::Port& port : executable.outputs) num_aliases += port.alias >= 0 ? 1 : 0;
    ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed << "\n" << ir::print(f);
  }
  EXPECT_GT(num_aliases, 50);
}

TEST(PlanMemory, RandomProgramsOnAMesh) {
  const P specs[] = {{"a"}, {none, "b"}, {"a", "b"}, {"b", "a"}, {{"a", "b"}}, {}};
  for (std::uint32_t seed = 1; seed <= 60; ++seed) {
    Function f = RandomProgram(seed).function();
    f.mesh = make_mesh({{"a", 2}, {"b", 2}});
    for (ir::Value& value : f.values) value.sharding.reset();
    partition::PartitionOptions options;
    for (std::size_t i = 0; i < f.inputs.size(); ++i) {
      const P& spec = f.type(f.inputs[i]).rank() == 2 ? specs[(seed + i) % 6] : specs[5];
      options.inputs.push_back(to_sharding(f.mesh, spec, f.type(f.inputs[i]), "test", {}));
    }
    options.is_storage.assign(f.inputs.size(), false);
    const Function sharded = partition::partition(f, options);
    checked_plan(sharded, no_donation(sharded));
    ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed << "\n" << ir::print(sharded);
  }
}

TEST(PlanMemory, TrainingStepsOnMeshes) {
  const Mesh mesh = make_mesh({{"data", 2}, {"model", 2}});
  const MlpStep mlp(mesh, 32, 16, 24, 3);
  const P specs[][3] = {{{"data"}, {}, {}},
                        {{"data"}, {none, "model"}, {"model"}},
                        {{{"data", "model"}}, {{"data", "model"}}, {"model"}}};
  for (const auto& spec : specs) {
    const partition::PartitionOptions wanted = mlp.options(spec[0], spec[1], spec[2]);
    const Function sharded = partition::partition(mlp.program.function, wanted);
    const CompileOptions options{.is_donated = wanted.is_storage,
                                 .output_alias = wanted.output_follows};
    const run::Executable executable = checked_plan(sharded, options);
    for (std::size_t i = 0; i < executable.outputs.size(); ++i) {
      EXPECT_EQ(executable.outputs[i].alias, wanted.output_follows[i]) << "output " << i;
    }
  }
}

}  // namespace
}  // namespace tessera::compile::host
