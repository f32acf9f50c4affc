// Loops over updates; compiled once per instruction set. They are plain loops, which the compiler
// makes vectors of: whole rows are cut into chunks whose number of columns it knows.

#if defined(TESSERA_SCATTER_LOOPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_SCATTER_LOOPS_INL_H_
#undef TESSERA_SCATTER_LOOPS_INL_H_
#else
#define TESSERA_SCATTER_LOOPS_INL_H_
#endif

#include <hwy/highway.h>

#include "compile/host/kernels/scatter/hits.h"
#include "compile/host/kernels/scatter/joins.h"
#include "compile/host/kernels/scatter/loops.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

/// Finds the grain of a position. Grains are about equally long, so that the first guess is close.
class LeafFinder {
 public:
  explicit LeafFinder(const ScatterProblem& p)
      : ends_(p.leaf_ends),
        per_place_(static_cast<double>(ends_.size()) /
                   static_cast<double>(std::max<std::int64_t>(p.count, 1))) {}

  std::int64_t operator()(std::int64_t place) const {
    if (ends_.size() < 2) return 0;
    auto leaf = static_cast<std::size_t>(static_cast<double>(place) * per_place_);
    leaf = std::min(leaf, ends_.size() - 1);
    while (leaf > 0 && place < ends_[leaf - 1]) --leaf;
    while (place >= ends_[leaf]) ++leaf;
    return static_cast<std::int64_t>(leaf);
  }

 private:
  std::span<const std::int64_t> ends_;
  double per_place_;
};

/// Joins the updates of rows. `Width` is the number of columns: a number, or a type that knows it.
///
/// Grains without an update are the neutral element and change nothing, so only those with updates
/// are made. The stack holds subtrees of which each is to the left of the next one, and lower.
template <typename Join, typename Width>
class RowJoiner {
 public:
  using T = typename Join::Element;
  using Key = typename Join::Key;

  RowJoiner(const ScatterProblem& p, Width width) : p_(p), width_(width), leaf_of_(p) {
    const auto depth = std::bit_width(std::max<std::size_t>(p.leaf_ends.size(), 1) - 1) + 1;
    stack_.resize(static_cast<std::size_t>(static_cast<std::int64_t>(depth) * width_));
  }

  void run(const RowBlock& block, std::int64_t column) {
    const T* const from = reinterpret_cast<const T*>(block.updates) + column;
    T* to = reinterpret_cast<T*>(block.result) + (column - block.column);
    for (std::int64_t row = 0; row < block.rows; ++row, to += p_.inner) {
      const Hit* const begin = block.hits + block.begins[row];
      const Hit* const end = block.hits + block.begins[row + 1];
      if (begin == end) {
        for (std::int64_t k = 0; k < width_; ++k) to[k] = Join::value(Join::kStart);
      } else {
        join(begin, end, from, to);
      }
    }
  }

 private:
  void join(const Hit* begin, const Hit* end, const T* from, T* to) {
    int levels[64];  // of the join of a subtree with the one below it
    Key* sum = stack_.data();
    std::int64_t top = 0;
    std::int64_t leaf = -1;
    for (const Hit* hit = begin; hit < end; ++hit) {
      prefetch(from + update(hit[SortedHits::kAhead].place) * p_.inner);
      const T* HWY_RESTRICT x = from + update(hit->place) * p_.inner;
      const std::int64_t next = leaf_of_(hit->place);
      if (next == leaf) {
        Key* HWY_RESTRICT to_sum = sum;
        for (std::int64_t k = 0; k < width_; ++k)
          to_sum[k] = Join::join(to_sum[k], Join::key(x[k]));
        continue;
      }
      if (leaf >= 0) {
        const int level = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(leaf ^ next)));
        for (; top > 0 && levels[top] < level; --top) sum = merge(sum);
        levels[++top] = level;
        sum += width_;
      }
      leaf = next;
      Key* HWY_RESTRICT to_sum = sum;
      for (std::int64_t k = 0; k < width_; ++k) {
        to_sum[k] = Join::join(Join::kStart, Join::key(x[k]));
      }
    }
    for (; top > 0; --top) sum = merge(sum);
    for (std::int64_t k = 0; k < width_; ++k) to[k] = Join::value(sum[k]);
  }

  std::int64_t update(std::uint32_t place) const {
    return p_.order.empty() ? place : p_.order[place];
  }
  void prefetch(const T* x) const {
    constexpr std::int64_t kLine = 64 / sizeof(T);
    for (std::int64_t k = 0; k < width_; k += kLine) __builtin_prefetch(x + k);
  }
  /// Joins the top of the stack to what is below it, which is returned.
  Key* merge(const Key* HWY_RESTRICT top) const {
    Key* HWY_RESTRICT below = const_cast<Key*>(top) - std::int64_t{width_};
    for (std::int64_t k = 0; k < width_; ++k) below[k] = Join::join(below[k], top[k]);
    return below;
  }

  const ScatterProblem& p_;
  Width width_;
  LeafFinder leaf_of_;
  std::vector<Key> stack_;
};

template <typename T>
using Chunk = std::integral_constant<std::int64_t, 256 / static_cast<std::int64_t>(sizeof(T))>;
using One = std::integral_constant<std::int64_t, 1>;

struct RowLoop {
  const ScatterProblem& p;
  const RowBlock& block;

  template <typename Join>
  void operator()(Join) const {
    using Whole = Chunk<typename Join::Element>;
    if (p.inner == 1) return RowJoiner<Join, One>(p, {}).run(block, 0);
    std::int64_t column = block.column;
    const std::int64_t end = column + block.columns;
    for (; column + Whole() <= end; column += Whole()) {
      RowJoiner<Join, Whole>(p, {}).run(block, column);
    }
    if (column < end) RowJoiner<Join, std::int64_t>(p, end - column).run(block, column);
  }
};

struct TableLoop {
  const ScatterProblem& p;
  const GrainTables& grains;

  template <typename Join>
  void operator()(Join join) const {
    if (p.inner == 1) {
      fill(join, One());
    } else {
      fill(join, p.inner);
    }
  }

  template <typename Join, typename Width>
  void fill(Join, Width width) const {
    using Key = typename Join::Key;
    const std::int64_t size = grains.rows * width;
    auto ends = p.leaf_ends.begin() + grains.first;
    std::int64_t place = grains.first == 0 ? 0 : *(ends - 1);
    const Hit* hit = grains.hits.data();
    const Hit* const last = hit + grains.hits.size();
    Key* table = reinterpret_cast<Key*>(grains.tables) + grains.first * size;
    for (std::int64_t grain = grains.first; grain < grains.end; ++grain, ++ends, table += size) {
      for (std::int64_t k = 0; k < size; ++k) table[k] = Join::kStart;
      if (grains.indices == nullptr) {
        for (; hit < last && hit->place < *ends; ++hit) {
          add(Join(), table + hit->row * width, update(hit->place), width);
        }
        continue;
      }
      for (; place < *ends; ++place) {
        const std::int64_t i = update(place);
        const std::int64_t row = grains.indices[i] - p.rows.first;
        if (row >= 0 && row < grains.rows) add(Join(), table + row * width, i, width);
      }
    }
  }

  std::int64_t update(std::int64_t place) const {
    return p.order.empty() ? place : p.order[static_cast<std::size_t>(place)];
  }

  template <typename Join, typename Width>
  void add(Join, typename Join::Key* HWY_RESTRICT sum, std::int64_t update, Width width) const {
    const auto* HWY_RESTRICT x =
        reinterpret_cast<const typename Join::Element*>(grains.updates) + update * width;
    for (std::int64_t k = 0; k < width; ++k) sum[k] = Join::join(sum[k], Join::key(x[k]));
  }
};

struct TreeLoop {
  const ScatterProblem& p;
  std::int64_t rows;
  std::byte* tables;
  std::byte* result;

  template <typename Join>
  void operator()(Join) const {
    using Key = typename Join::Key;
    const std::int64_t size = rows * p.inner;
    const std::int64_t grains = std::ssize(p.leaf_ends);
    Key* const first = reinterpret_cast<Key*>(tables);
    for (std::int64_t half = 1; half < grains; half *= 2) {
      for (std::int64_t i = 0; i + half < grains; i += 2 * half) {
        Key* HWY_RESTRICT left = first + i * size;
        const Key* HWY_RESTRICT right = left + half * size;
        for (std::int64_t k = 0; k < size; ++k) left[k] = Join::join(left[k], right[k]);
      }
    }
    auto* const to = reinterpret_cast<typename Join::Element*>(result);
    for (std::int64_t k = 0; k < size; ++k) to[k] = Join::value(first[k]);
  }
};

void JoinRows(const ScatterProblem& problem, const RowBlock& block) {
  with_join(problem.kind, problem.dtype, RowLoop{problem, block});
}
void FillTables(const ScatterProblem& problem, const GrainTables& grains) {
  with_join(problem.kind, problem.dtype, TableLoop{problem, grains});
}
void JoinTables(const ScatterProblem& problem, std::int64_t rows, std::byte* tables,
                std::byte* result) {
  with_join(problem.kind, problem.dtype, TreeLoop{problem, rows, tables, result});
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
