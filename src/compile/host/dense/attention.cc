// attention and its derivatives.
#include "compile/host/kernels/attention/attention.h"

#include "compile/host/dense_tasks.h"
#include "ops/attention/attention.h"
#include "ops/ops.h"

namespace tessera::compile::host {

namespace {

using kernels::AttentionProblem;

/// The lengths of ranges of queries or keys that are worked on at once: long enough to pay for
/// packing, and short enough for the caches.
constexpr std::int64_t kForwardQueries = 256;
constexpr std::int64_t kBackwardRange = 512;
constexpr std::int64_t kLeastRange = 64;

/// The number of ranges of at most `longest` positions; more if that gives too few pieces of work.
std::int64_t num_ranges(std::int64_t size, std::int64_t longest, std::int64_t heads,
                        int num_workers) {
  const auto ranges_of = [&](std::int64_t length) { return (size + length - 1) / length; };
  const std::int64_t wanted =
      num_workers == 1 ? 1 : 4 * num_workers / std::max<std::int64_t>(heads, 1);
  return std::max<std::int64_t>({ranges_of(longest), std::min(wanted, ranges_of(kLeastRange)), 1});
}

PositionRange range_of(std::int64_t i, std::int64_t count, std::int64_t size) {
  return {i * size / count, (i + 1) * size / count};
}

AttentionProblem problem_of(const LowerContext& context, const Equation& equation,
                            const AtomDigits& digits, std::size_t first_optional) {
  const Box q = context.box(equation.operands[0], digits);
  const Box k = context.box(equation.operands[1], digits);
  const Box v = context.box(equation.operands[2], digits);
  const ops::AttentionSizes tile =
      ops::attention_sizes({{DType::f32, q.size}, {DType::f32, k.size}, {DType::f32, v.size}});
  const std::size_t rank = tile.batch.size();
  AttentionProblem problem{.batch = num_elements(tile.batch),
                           .queries = tile.queries,
                           .keys = tile.keys,
                           .heads = tile.heads,
                           .group = tile.group(),
                           .depth = tile.depth,
                           .value_depth = tile.value_depth,
                           .first_query = q.start[rank],
                           .first_key = k.start[rank],
                           .first_head = q.start[rank + 1],
                           .all_queries = context.function().type(equation.operands[0]).shape[rank],
                           .all_keys = context.function().type(equation.operands[1]).shape[rank],
                           .window = ops::key_window(equation.attributes),
                           .scale = static_cast<float>(equation.attributes.get<double>("scale")),
                           .is_bf16 = dtype_of(context, equation.operands[0]) == DType::bf16};
  problem.dropout = ops::drop_rule(equation.attributes);
  const std::size_t bias = ops::attention_operands(equation.attributes, first_optional).bias;
  if (bias == 0) return problem;
  const Shape& whole = context.function().type(equation.operands[bias]).shape;
  std::vector<std::int64_t> strides =
      row_major_strides(context.box(equation.operands[bias], digits).size);
  for (std::size_t i = 0; i < strides.size(); ++i) strides[i] = whole[i] == 1 ? 0 : strides[i];
  for (std::int64_t batch = 0; batch < problem.batch; ++batch) {
    std::int64_t offset = 0;
    std::int64_t rest = batch;
    for (std::size_t n = rank; n-- > 0; rest /= tile.batch[n]) {
      offset += rest % tile.batch[n] * strides[n];
    }
    problem.bias.batches.push_back(offset);
  }
  problem.bias.head = strides[rank];
  problem.bias.query = strides[rank + 1];
  problem.bias.key = strides[rank + 2];
  return problem;
}

/// A piece of work: one head, and ranges of queries and keys.
struct Piece {
  std::int64_t head;
  PositionRange queries;
  PositionRange keys;
};

class AttentionKernel : public run::Kernel {
 public:
  AttentionKernel(AttentionProblem problem, int num_workers, std::int64_t flops)
      : problem_(std::move(problem)), num_workers_(num_workers), flops_(flops) {}

  int num_parts() const override { return num_parts_; }
  std::int64_t flops() const override { return flops_; }
  std::int64_t scratch_bytes() const override { return scratch_bytes_; }

 protected:
  std::int64_t num_heads() const { return problem_.batch * problem_.heads; }
  /// Must be called once the number of pieces is known.
  void set_pieces(std::int64_t count, std::int64_t scratch_bytes) {
    constexpr std::int64_t kMinPartFlops = std::int64_t{128} * 1024;
    num_pieces_ = count;
    num_parts_ = kernels::num_parts_for(num_workers_, flops_, kMinPartFlops, count);
    scratch_bytes_ = scratch_bytes;
  }
  PositionRange pieces_of(int part) const { return range_of(part, num_parts_, num_pieces_); }

  AttentionProblem problem_;  // NOLINT(cppcoreguidelines-non-private-member-variables-in-classes)
  int num_workers_;           // NOLINT(cppcoreguidelines-non-private-member-variables-in-classes)

 private:
  std::int64_t flops_;
  std::int64_t num_pieces_ = 0;
  std::int64_t scratch_bytes_ = 0;
  int num_parts_ = 1;
};

/// The operands in `buffers`. The optional ones come after the first `first`.
kernels::AttentionOperands operands_of(std::span<std::byte* const> buffers,
                                       const ops::AttentionOperands& more) {
  kernels::AttentionOperands operands{.q = buffers[0], .k = buffers[1], .v = buffers[2]};
  if (more.bias != 0) operands.bias = elements_of<const float>(buffers[more.bias]);
  if (more.lengths != 0) operands.lengths = elements_of<const std::int32_t>(buffers[more.lengths]);
  if (more.dropout_keys != 0) {
    operands.dropout_keys = elements_of<const std::uint32_t>(buffers[more.dropout_keys]);
  }
  return operands;
}

class ForwardKernel final : public AttentionKernel {
 public:
  ForwardKernel(AttentionProblem problem, const ops::AttentionOperands& more, std::size_t results,
                int num_workers, std::int64_t flops)
      : AttentionKernel(std::move(problem), num_workers, flops),
        more_(more),
        results_(results),
        ranges_(num_ranges(problem_.queries, kForwardQueries, num_heads(), num_workers)) {
    const std::int64_t longest = (problem_.queries + ranges_ - 1) / ranges_;
    set_pieces(num_heads() * ranges_, kernels::attend_scratch_bytes(problem_, longest));
  }

  void run(std::span<std::byte* const> buffers, int part) const override {
    const kernels::AttentionResults results{.output = buffers[results_],
                                            .lse = elements_of<float>(buffers[results_ + 1])};
    const PositionRange pieces = pieces_of(part);
    for (std::int64_t i = pieces.first; i < pieces.last; ++i) {
      kernels::attend(problem_, operands_of(buffers, more_), results, i / ranges_,
                      range_of(i % ranges_, ranges_, problem_.queries));
    }
  }

 private:
  ops::AttentionOperands more_;
  std::size_t results_;  // the first buffer of results
  std::int64_t ranges_;
};

/// A part of a tile's keys, and the queries that attend to it.
struct KeyPart {
  AttentionProblem problem;  // includes the place of these keys in the whole sequence
  PositionRange queries;     // of the tile
  PositionRange leaves;
  std::int64_t result;  // the first element of its partial results
};

class PartsKernel final : public AttentionKernel {
 public:
  PartsKernel(const AttentionProblem& tile, std::vector<KeyPart> parts,
              const ops::AttentionOperands& more, std::size_t result, int num_workers,
              std::int64_t flops)
      : AttentionKernel(tile, num_workers, flops),
        parts_(std::move(parts)),
        more_(more),
        result_(result),
        queries_(parts_.empty() ? 0 : parts_[0].queries.size()),
        ranges_(num_ranges(queries_, kForwardQueries,
                           num_heads() * static_cast<std::int64_t>(parts_.size()), num_workers)) {
    const std::int64_t longest = (queries_ + ranges_ - 1) / ranges_;
    set_pieces(static_cast<std::int64_t>(parts_.size()) * num_heads() * ranges_,
               kernels::attend_scratch_bytes(problem_, longest));
  }

  void run(std::span<std::byte* const> buffers, int part) const override {
    const PositionRange pieces = pieces_of(part);
    const std::int64_t each = num_heads() * ranges_;
    for (std::int64_t i = pieces.first; i < pieces.last; ++i) {
      const KeyPart& keys = parts_[static_cast<std::size_t>(i / each)];
      PositionRange queries = range_of(i % ranges_, ranges_, queries_);
      queries.first += keys.queries.first;
      queries.last += keys.queries.first;
      kernels::attend_part(keys.problem, operands_of(buffers, more_),
                           elements_of<float>(buffers[result_]) + keys.result, i % each / ranges_,
                           queries, keys.leaves);
    }
  }

 private:
  std::vector<KeyPart> parts_;
  ops::AttentionOperands more_;
  std::size_t result_;
  std::int64_t queries_, ranges_;  // of each part
};

/// The parts of the keys that the tile holds.
std::vector<KeyPart> parts_of(const AttentionProblem& tile, const ops::AttentionParts& parts) {
  const std::int64_t keys = tile.all_keys / parts.count;
  const std::int64_t leaves = num_key_leaves(tile.all_keys) / parts.count;
  const std::int64_t count = tile.keys / keys;
  const std::int64_t queries = parts.is_paired() && count > 0 ? tile.queries / count : tile.queries;
  const std::int64_t results =
      tile.batch * tile.queries * tile.heads * (tile.value_depth + ops::kPartialFeatures);
  std::vector<KeyPart> all;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t source = parts.source(tile.first_key / keys + i);
    const std::int64_t first = parts.is_paired() ? i * queries : 0;
    KeyPart part{.problem = tile,
                 .queries = {first, first + queries},
                 .leaves = {source * leaves, (source + 1) * leaves},
                 .result = parts.is_paired() ? 0 : i * results};
    part.problem.first_key = (source - i) * keys;
    if (parts.is_paired()) {
      // The bias covers all keys.
      for (std::int64_t& batch : part.problem.bias.batches) {
        batch += part.problem.first_key * part.problem.bias.key;
      }
    }
    all.push_back(std::move(part));
  }
  return all;
}

/// Which results a derivative has, as numbers of buffers after the operands; -1 for none.
struct GradientBuffers {
  int q = -1, k = -1, v = -1, scores = -1;
};

GradientBuffers gradient_buffers(const Equation& equation) {
  if (ops::is(equation, ops::attention_grad_op)) return {.q = 0, .k = 1, .v = 2};
  if (ops::is(equation, ops::attention_grad_q_op)) return {.q = 0};
  if (ops::is(equation, ops::attention_grad_kv_op)) return {.k = 0, .v = 1};
  return {.scores = 0};
}

class BackwardKernel final : public AttentionKernel {
 public:
  BackwardKernel(AttentionProblem problem, const ops::AttentionOperands& more,
                 const GradientBuffers& wanted, std::size_t results, int num_workers,
                 std::int64_t flops)
      : AttentionKernel(std::move(problem), num_workers, flops),
        more_(more),
        wanted_(wanted),
        results_(results) {
    const bool is_split = wanted.q < 0 || wanted.k < 0;
    // Heads share nothing. If there are enough of them, each computes its scores only once.
    is_joint_ = !is_split && (num_workers == 1 || num_heads() >= 2 * num_workers);
    if (wanted.k < 0 || (!is_split && !is_joint_)) {
      query_ranges_ = num_ranges(problem_.queries, kBackwardRange, num_heads(), num_workers);
    }
    if (wanted.k >= 0 && !is_joint_) {
      key_ranges_ = num_ranges(problem_.keys, kBackwardRange, num_heads(), num_workers);
    }
    const std::int64_t ranges = is_joint_ ? 1 : query_ranges_ + key_ranges_;
    set_pieces(num_heads() * ranges, longest_scratch());
  }

  void run(std::span<std::byte* const> buffers, int part) const override {
    kernels::AttentionOperands operands = operands_of(buffers, more_);
    operands.d_output = buffers[3];
    operands.lse = elements_of<const float>(buffers[4]);
    operands.delta = elements_of<const float>(buffers[5]);
    const PositionRange pieces = pieces_of(part);
    for (std::int64_t i = pieces.first; i < pieces.last; ++i) run_piece(i, buffers, operands);
  }

 private:
  PositionRange all_queries() const { return {0, problem_.queries}; }
  PositionRange all_keys() const { return {0, problem_.keys}; }

  std::int64_t longest_scratch() const {
    std::byte wanted{};
    kernels::AttentionGradients all;
    if (wanted_.q >= 0) all.q = &wanted;
    if (wanted_.k >= 0) all.k = all.v = &wanted;
    return kernels::attend_backward_scratch_bytes(problem_, all, problem_.queries);
  }

  kernels::AttentionGradients gradients_of(std::span<std::byte* const> buffers, bool of_queries,
                                           bool of_keys) const {
    const auto buffer = [&](int i, bool is_wanted) {
      return i < 0 || !is_wanted ? nullptr : buffers[results_ + static_cast<std::size_t>(i)];
    };
    return {.q = buffer(wanted_.q, of_queries),
            .k = buffer(wanted_.k, of_keys),
            .v = buffer(wanted_.v, of_keys),
            .scores = reinterpret_cast<float*>(buffer(wanted_.scores, of_queries))};
  }

  void run_piece(std::int64_t i, std::span<std::byte* const> buffers,
                 const kernels::AttentionOperands& operands) const {
    const auto run = [&](std::int64_t head, PositionRange queries, PositionRange keys,
                         bool of_queries, bool of_keys) {
      kernels::attend_backward(problem_, operands, gradients_of(buffers, of_queries, of_keys), head,
                               queries, keys);
    };
    if (is_joint_) return run(i, all_queries(), all_keys(), true, true);
    const std::int64_t ranges = query_ranges_ + key_ranges_;
    const std::int64_t range = i % ranges;
    if (range < query_ranges_) {
      return run(i / ranges, range_of(range, query_ranges_, problem_.queries), all_keys(), true,
                 false);
    }
    run(i / ranges, all_queries(), range_of(range - query_ranges_, key_ranges_, problem_.keys),
        false, true);
  }

  ops::AttentionOperands more_;
  GradientBuffers wanted_;
  std::size_t results_;
  bool is_joint_ = false;
  std::int64_t query_ranges_ = 0;
  std::int64_t key_ranges_ = 0;
};

/// One task per tile. `make` gets the problem and returns the kernel.
template <typename Make>
std::vector<TileTask> attention_tasks(const LowerContext& context, const Equation& equation,
                                      std::size_t first_optional, Make make) {
  const Layout& layout = context.layout(equation.results[0]);
  std::vector<TileTask> tasks;
  for (std::int64_t tile : context.tiles(equation.results[0])) {
    const AtomDigits digits = layout.digits(tile);
    TileTask task{.kernel = make(problem_of(context, equation, digits, first_optional)),
                  .reads = {},
                  .writes = {},
                  .may_share = {}};
    for (ValueId id : equation.operands) task.reads.push_back(context.read(id, digits).tile);
    for (ValueId id : equation.results) {
      task.writes.push_back({id, context.layout(id).tile_at(digits)});
    }
    tasks.push_back(std::move(task));
  }
  return tasks;
}

/// The flops of this tile, from an estimate of how many pairs of queries and keys see each other.
std::int64_t flops_of(const AttentionProblem& p, std::int64_t of_depth,
                      std::int64_t of_value_depth) {
  std::int64_t pairs = 0;
  for (std::int64_t i = 0; i < p.queries; ++i) {
    pairs += overlap(p.window.keys_of(p.first_query + i, p.all_keys),
                     {p.first_key, p.first_key + p.keys})
                 .size();
  }
  return 2 * p.batch * p.heads * pairs * (of_depth * p.depth + of_value_depth * p.value_depth);
}

/// The problem with only the keys and queries of one part.
AttentionProblem seen_by(const KeyPart& part) {
  AttentionProblem problem = part.problem;
  const std::int64_t leaves = num_key_leaves(problem.all_keys);
  problem.first_query += part.queries.first;
  problem.queries = part.queries.size();
  problem.first_key = part.leaves.first * problem.all_keys / leaves;
  problem.keys = part.leaves.size() * problem.all_keys / leaves;
  return problem;
}

/// One task per tile, which calls `run` for ranges of rows of partial results.
template <typename Run>
std::vector<TileTask> partial_tasks(const LowerContext& context, const Equation& equation,
                                    Run run) {
  return task_per_tile(context, equation, [&](const AtomDigits& digits) {
    const Shape shape = context.box(equation.operands[0], digits).size;
    const std::int64_t width = shape.back();
    return make_range_kernel(
        context, num_elements(shape) / width, width,
        [=](auto buffers, auto begin, auto end) { run(buffers, begin, end - begin, width); });
  });
}

std::vector<TileTask> lower_attention(const LowerContext& context, const Equation& equation) {
  const std::size_t first = ops::kAttentionOperands;
  return attention_tasks(context, equation, first, [&](AttentionProblem problem) {
    const std::int64_t flops = flops_of(problem, 1, 1);
    return std::make_shared<ForwardKernel>(std::move(problem),
                                           ops::attention_operands(equation.attributes, first),
                                           equation.operands.size(), context.num_workers(), flops);
  });
}

std::vector<TileTask> lower_attention_parts(const LowerContext& context, const Equation& equation) {
  const std::size_t first = ops::kAttentionOperands;
  const ops::AttentionParts parts = ops::attention_parts(equation.attributes);
  return attention_tasks(context, equation, first, [&](const AttentionProblem& tile) {
    std::vector<KeyPart> of_tile = parts_of(tile, parts);
    std::int64_t flops = 0;
    for (const KeyPart& part : of_tile) flops += flops_of(seen_by(part), 1, 1);
    return std::make_shared<PartsKernel>(tile, std::move(of_tile),
                                         ops::attention_operands(equation.attributes, first),
                                         equation.operands.size(), context.num_workers(), flops);
  });
}

std::vector<TileTask> lower_attention_join(const LowerContext& context, const Equation& equation) {
  const auto join = [](auto buffers, auto first, auto rows, auto width) {
    kernels::join_partials(elements_of<const float>(buffers[0]) + first * width,
                           elements_of<const float>(buffers[1]) + first * width,
                           elements_of<float>(buffers[2]) + first * width, rows, width);
  };
  std::vector<TileTask> tasks = partial_tasks(context, equation, join);
  // Each row is read before it is written.
  for (TileTask& task : tasks) task.may_share = {{0, 0}, {0, 1}};
  return tasks;
}

std::vector<TileTask> lower_attention_finish(const LowerContext& context,
                                             const Equation& equation) {
  return partial_tasks(context, equation, [](auto buffers, auto first, auto rows, auto width) {
    kernels::finish_partials(
        elements_of<const float>(buffers[0]) + first * width,
        elements_of<float>(buffers[1]) + first * (width - ops::kPartialFeatures),
        elements_of<float>(buffers[2]) + first, rows, width);
  });
}

std::vector<TileTask> lower_attention_grad(const LowerContext& context, const Equation& equation) {
  const std::size_t first = ops::kAttentionGradOperands;
  const GradientBuffers wanted = gradient_buffers(equation);
  return attention_tasks(context, equation, first, [&](AttentionProblem problem) {
    const std::int64_t flops =
        flops_of(problem, 1 + (wanted.q >= 0 ? 1 : 0) + (wanted.k >= 0 ? 1 : 0),
                 1 + (wanted.k >= 0 ? 1 : 0));
    return std::make_shared<BackwardKernel>(
        std::move(problem), ops::attention_operands(equation.attributes, first), wanted,
        equation.operands.size(), context.num_workers(), flops);
  });
}

}  // namespace

Lowerings attention_lowerings() {
  return {{"attention", lower_attention, true, Arithmetic::bf16, false},
          {"attention_finish", lower_attention_finish, true, Arithmetic::wide, false},
          {"attention_grad", lower_attention_grad, true, Arithmetic::bf16, false},
          {"attention_join", lower_attention_join, true, Arithmetic::wide, false},
          {"attention_parts", lower_attention_parts, true, Arithmetic::bf16, false}};
}

}  // namespace tessera::compile::host
