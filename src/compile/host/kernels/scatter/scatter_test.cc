#include "compile/host/kernels/scatter/scatter.h"

#include <algorithm>

#include "compile/host/kernels/on_every_target.h"
#include "compile/host/kernels/test_values.h"

namespace tessera::kernels {
namespace {

using testing::at;
using testing::on_every_target;
using testing::Random;
using testing::random_values;
using testing::same_bits;

template <typename T>
std::byte* bytes_of(std::vector<T>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

template <typename T>
T neutral(ReduceKind kind) {
  using Limits = std::numeric_limits<T>;
  if (kind == ReduceKind::sum) return T{};
  if constexpr (Limits::has_infinity) {
    return kind == ReduceKind::min ? Limits::infinity() : -Limits::infinity();
  }
  return kind == ReduceKind::min ? Limits::max() : Limits::lowest();
}

/// For each row, joins the updates of each grain in order, then all grains by the tree.
template <typename T>
std::vector<T> naive_scatter(const ScatterProblem& p, const std::vector<std::int32_t>& indices,
                             const std::vector<T>& updates) {
  const auto joined = [&](T x, T y) {
    if (p.kind == ReduceKind::sum) return testing::naive_add(x, y);
    return testing::naive_extreme(x, y, p.kind == ReduceKind::min);
  };
  const std::vector<std::int64_t> ends =
      p.leaf_ends.empty() ? std::vector<std::int64_t>{p.count} : p.leaf_ends;
  const T none = neutral<T>(p.kind);
  std::vector<T> result;
  for (std::int64_t unit = 0; unit < p.batch * p.outer; ++unit) {
    std::vector<T> grains(ends.size() * at(p.rows.count * p.inner), none);
    const auto grain_of = [&](std::size_t grain, std::int64_t n) -> T& {
      return grains[at(n) * ends.size() + grain];
    };
    std::int64_t begin = 0;
    for (std::size_t grain = 0; grain < ends.size(); ++grain) {
      for (; begin < ends[grain]; ++begin) {
        const std::int64_t update = p.order.empty() ? begin : p.order[at(begin)];
        const std::int64_t row = indices[at(unit / p.outer * p.count + update)] - p.rows.first;
        if (row < 0 || row >= p.rows.count) continue;
        for (std::int64_t k = 0; k < p.inner; ++k) {
          T& to = grain_of(grain, row * p.inner + k);
          to = joined(to, updates[at((unit * p.count + update) * p.inner + k)]);
        }
      }
    }
    for (std::int64_t n = 0; n < p.rows.count * p.inner; ++n) {
      const std::span<const T> of_row(&grain_of(0, n), ends.size());
      result.push_back(testing::naive_tree(of_row, joined));
    }
  }
  return result;
}

/// Some or all rows of a table.
HeldRows random_rows(Random& random, std::int64_t most) {
  const std::int64_t total = random.integer(1, most);
  if (random.one_in(2)) return {.first = 0, .count = total, .total = total};
  const std::int64_t first = random.integer(0, total - 1);
  return {.first = first, .count = random.integer(0, total - first), .total = total};
}

/// Sums of floats have random grains; what is joined in any order may have none.
ScatterProblem random_problem(Random& random, ReduceKind kind, DType dtype) {
  ScatterProblem p{.kind = kind,
                   .dtype = dtype,
                   .batch = random.integer(random.one_in(20) ? 0 : 1, 2),
                   .outer = random.integer(1, 3),
                   .rows = random_rows(random, random.one_in(2) ? 8 : 600),
                   .inner = random.one_in(3) ? random.integer(0, 3) : random.integer(1, 150),
                   .count = random.integer(0, random.one_in(3) ? 3000 : 60)};
  if (random.one_in(20)) {  // many blocks of narrow rows, cut between parts
    p.batch = p.outer = 1;
    p.inner = random.integer(1, 2);
    p.rows = random_rows(random, 40000);
    p.count = random.integer(0, 60000);
  }
  const bool is_free = kind != ReduceKind::sum || !is_float(dtype);
  if (is_free && random.one_in(2)) return p;
  if (random.one_in(2)) {
    for (std::int64_t i = 0; i < p.count; ++i) p.order.push_back(i);
    std::shuffle(p.order.begin(), p.order.end(), random.engine);
  }
  for (std::int64_t leaf = random.integer(0, 11); leaf > 0; --leaf) {
    p.leaf_ends.push_back(random.integer(0, p.count));
  }
  p.leaf_ends.push_back(p.count);
  std::sort(p.leaf_ends.begin(), p.leaf_ends.end());
  return p;
}

/// Often most of them name one row; some lie below or above the range.
std::vector<std::int32_t> random_indices(Random& random, const ScatterProblem& p) {
  std::vector<std::int32_t> indices(at(p.batch * p.count));
  const std::int64_t most =
      random.one_in(2) ? p.rows.total : std::min<std::int64_t>(p.rows.total, 3);
  const std::int64_t hot = random.integer(0, p.rows.total - 1);
  const bool is_skewed = random.one_in(3);
  for (std::int32_t& index : indices) {
    index = static_cast<std::int32_t>(random.integer(0, most - 1));
    if (is_skewed && !random.one_in(4)) index = static_cast<std::int32_t>(hot);
    if (random.one_in(10)) index = static_cast<std::int32_t>(random.integer(-2, p.rows.total + 1));
    if (random.one_in(100)) index = std::numeric_limits<std::int32_t>::min();
    if (random.one_in(100)) index = std::numeric_limits<std::int32_t>::max();
  }
  return indices;
}

/// Parts in any order.
template <typename T>
std::vector<T> run(Random& random, const ScatterProblem& p, int workers,
                   const std::vector<std::int32_t>& indices, std::vector<T>& updates) {
  const ScatterPlan plan(p, workers);
  std::vector<T> result(at(p.batch * p.outer * p.rows.count * p.inner), T{77});
  std::vector<std::byte> scratch(at(plan.scratch_bytes()), std::byte{77});
  std::vector<int> parts(at(plan.num_parts()));
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i] = static_cast<int>(i);
  std::shuffle(parts.begin(), parts.end(), random.engine);
  for (const int part : parts) {
    plan.run(indices.data(), bytes_of(updates), bytes_of(result), scratch.data(), part);
  }
  if (!scratch.empty()) plan.join(scratch.data(), bytes_of(result));
  return result;
}

template <typename T>
void check(ReduceKind kind, int count) {
  Random random;
  for (int i = 0; i < count; ++i) {
    const ScatterProblem p = random_problem(random, kind, testing::dtype_of<T>());
    const auto indices = random_indices(random, p);
    auto updates =
        random_values<T>(random, at(p.batch * p.outer * p.count * p.inner), random.one_in(3));
    const std::vector<T> wanted = naive_scatter(p, indices, updates);
    for (const int workers : {1, 2, 7}) {
      ASSERT_TRUE(same_bits(run(random, p, workers, indices, updates), wanted))
          << p.count << " updates of " << p.inner << " into " << p.rows.count << " rows, grains to "
          << to_string(p.leaf_ends) << ", " << workers << " workers";
    }
  }
}

TEST(Scatter, SumsFollowTheTree) {
  on_every_target([](const char*) {
    check<float>(ReduceKind::sum, 200);
    check<double>(ReduceKind::sum, 50);
    check<std::int32_t>(ReduceKind::sum, 50);
    check<std::uint32_t>(ReduceKind::sum, 50);
  });
}

TEST(Scatter, ExtremesOrderZerosAndKeepNan) {
  on_every_target([](const char*) {
    for (const ReduceKind kind : {ReduceKind::max, ReduceKind::min}) {
      check<float>(kind, 100);
      check<double>(kind, 50);
      check<std::int32_t>(kind, 50);
      check<std::uint32_t>(kind, 50);
    }
  });
}

}  // namespace
}  // namespace tessera::kernels
