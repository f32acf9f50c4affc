// Loops over updates; compiled once per instruction set. They are plain loops, which the compiler
// vectorises: whole rows are cut into chunks with a number of columns that it knows.

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

using One = std::integral_constant<std::int64_t, 1>;

/// Joins the updates of rows. `Width`: an integer or a constant that is the number of columns.
template <typename Join, typename Width>
class RowJoiner {
 public:
  using T = typename Join::Element;
  using Key = typename Join::Key;

  RowJoiner(const ScatterProblem& p, Join join, Width width)
      : p_(p), join_(join), width_(width), grains_(std::ssize(p.leaf_ends)), leaf_of_(p) {
    const auto depth = static_cast<std::int64_t>(
        std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(grains_ - 1, 0))) + 1);
    keys_.resize(
        static_cast<std::size_t>(std::max(depth, std::min(grains_, kMostTables)) * width_));
  }

  void run(const RowBlock& block, std::int64_t column) {
    const T* const from = reinterpret_cast<const T*>(block.updates) + column;
    T* const to = reinterpret_cast<T*>(block.result) + (column - block.column);
    for (std::int64_t row = 0; row < block.rows; ++row) {
      const std::int64_t next = block.next_with_updates(row);
      write_empty(to + row * p_.inner, next - row);
      if (next == block.rows) return;
      row = next;
      const Hit* const begin = block.hits + block.begins[row];
      const Hit* const end = block.hits + block.begins[row + 1];
      Key* const sum = keys_.data();
      if (end - begin <= 2 || grains_ == 1) {  // the sum of two terms has one order
        join_terms(begin, end, from, sum);
      } else if (grains_ <= kMostTables && 2 * (end - begin) >= grains_) {
        join_by_tables(begin, end, from, sum);
      } else {
        join_by_stack(begin, end, from, sum);
      }
      T* const result = to + row * p_.inner;
      for (std::int64_t k = 0; k < width_; ++k) result[k] = join_.value(sum[k]);
    }
  }

 private:
  static constexpr std::int64_t kMostTables = 16;

  void write_empty(T* to, std::int64_t rows) const {
    const T empty = join_.value(Join::kStart);
    if (width_ == p_.inner) return static_cast<void>(std::fill_n(to, rows * width_, empty));
    for (; rows > 0; --rows, to += p_.inner) std::fill_n(to, std::int64_t{width_}, empty);
  }

  void join_terms(const Hit* begin, const Hit* end, const T* from, Key* sum) {
    set(sum, term(begin, from));
    for (const Hit* hit = begin + 1; hit < end; ++hit) add(sum, term(hit, from));
  }

  /// For many updates: computes all grains, without asking which of them have updates.
  void join_by_tables(const Hit* begin, const Hit* end, const T* from, Key* sums) {
    for (std::int64_t grain = 0; grain < grains_; ++grain) clear(sums + grain * width_);
    for (const Hit* hit = begin; hit < end; ++hit) {
      add(sums + leaf_of_(hit->place) * width_, term(hit, from));
    }
    for (std::int64_t half = 1; half < grains_; half *= 2) {
      for (std::int64_t i = 0; i + half < grains_; i += 2 * half) {
        merge(sums + i * width_, sums + (i + half) * width_);
      }
    }
  }

  /// For few updates: grains without updates are the neutral element and change nothing, so only
  /// grains with updates are computed. Each subtree on the stack is to the left of the next one,
  /// and higher.
  void join_by_stack(const Hit* begin, const Hit* end, const T* from, Key* sum) {
    int levels[64];  // of the join of a subtree with the one below it
    std::int64_t top = 0;
    std::int64_t leaf = -1;
    const auto pop = [&]() HWY_ATTR {
      merge(sum - std::int64_t{width_}, sum);
      sum -= std::int64_t{width_};
      --top;
    };
    for (const Hit* hit = begin; hit < end; ++hit) {
      const T* const x = term(hit, from);
      const std::int64_t next = leaf_of_(hit->place);
      if (next == leaf) {
        add(sum, x);
        continue;
      }
      if (leaf >= 0) {
        const int level = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(leaf ^ next)));
        while (top > 0 && levels[top] < level) pop();
        levels[++top] = level;
        sum += std::int64_t{width_};
      }
      leaf = next;
      set(sum, x);
    }
    while (top > 0) pop();
  }

  /// Also prefetches an update that comes later.
  const T* term(const Hit* hit, const T* from) const {
    constexpr std::int64_t kLine = 64 / sizeof(T);
    const T* const later = from + update(hit[SortedHits::kAhead].place) * p_.inner;
    for (std::int64_t k = 0; k < width_; k += kLine) __builtin_prefetch(later + k);
    return from + update(hit->place) * p_.inner;
  }
  std::int64_t update(std::uint32_t place) const {
    return p_.order.empty() ? place : p_.order[place];
  }

  void clear(Key* sum) const {
    for (std::int64_t k = 0; k < width_; ++k) sum[k] = Join::kStart;
  }
  void set(Key* HWY_RESTRICT sum, const T* HWY_RESTRICT x) const {
    for (std::int64_t k = 0; k < width_; ++k) sum[k] = Join::join(Join::kStart, join_.key(x[k]));
  }
  void add(Key* HWY_RESTRICT sum, const T* HWY_RESTRICT x) const {
    for (std::int64_t k = 0; k < width_; ++k) sum[k] = Join::join(sum[k], join_.key(x[k]));
  }
  void merge(Key* HWY_RESTRICT left, const Key* HWY_RESTRICT right) const {
    for (std::int64_t k = 0; k < width_; ++k) left[k] = Join::join(left[k], right[k]);
  }

  const ScatterProblem& p_;
  Join join_;
  Width width_;
  std::int64_t grains_;
  LeafFinder leaf_of_;
  std::vector<Key> keys_;
};

template <typename T>
using Chunk = std::integral_constant<std::int64_t, 256 / static_cast<std::int64_t>(sizeof(T))>;

struct RowLoop {
  const ScatterProblem& p;
  const RowBlock& block;

  template <typename Join>
  void operator()(Join join) const {
    using Whole = Chunk<typename Join::Element>;
    if (p.inner == 1) return RowJoiner<Join, One>(p, join, {}).run(block, 0);
    std::int64_t column = block.column;
    const std::int64_t end = column + block.columns;
    for (; column + Whole() <= end; column += Whole()) {
      RowJoiner<Join, Whole>(p, join, {}).run(block, column);
    }
    if (column < end) RowJoiner<Join, std::int64_t>(p, join, end - column).run(block, column);
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
  void fill(Join join, Width width) const {
    using Key = typename Join::Key;
    const std::int64_t size = (grains.rows + 1) * width;
    auto ends = p.leaf_ends.begin() + grains.first;
    std::int64_t place = grains.first == 0 ? 0 : *(ends - 1);
    const Hit* hit = grains.hits.data();
    const Hit* const last = hit + grains.hits.size();
    Key* table = reinterpret_cast<Key*>(grains.tables) + grains.first * size;
    for (std::int64_t grain = grains.first; grain < grains.end; ++grain, ++ends, table += size) {
      for (std::int64_t k = 0; k < size; ++k) table[k] = Join::kStart;
      if (grains.indices == nullptr) {
        for (; hit < last && hit->place < *ends; ++hit) {
          add(join, table + hit->row * width, update(hit->place), width);
        }
        continue;
      }
      add_all(join, table, place, *ends, width);
      place = *ends;
    }
  }

  /// Joins the updates [place, end).
  template <typename Join, typename Width>
  void add_all(Join join, typename Join::Key* table, std::int64_t place, std::int64_t end,
               Width width) const {
    const auto rows = static_cast<std::uint64_t>(grains.rows);
    for (; place < end; ++place) {
      const std::int64_t i = update(place);
      const std::uint64_t row = row_of(i);
      if (row < rows) add(join, table + static_cast<std::int64_t>(row) * width, i, width);
    }
  }

  /// For single columns. Updates of other rows go to the last row: a branch would be unpredictable.
  template <typename Join>
  void add_all(Join join, typename Join::Key* table, std::int64_t place, std::int64_t end,
               One) const {
    using Key = typename Join::Key;
    const auto* const x = reinterpret_cast<const typename Join::Element*>(grains.updates);
    const auto rows = static_cast<std::uint64_t>(grains.rows);
    const auto add = [&](std::int64_t i, Key key) HWY_ATTR {
      Key& sum = table[std::min(row_of(i), rows)];
      sum = Join::join(sum, key);
    };
    if constexpr (std::is_same_v<Key, typename Join::Element>) {
      for (; place < end; ++place) add(update(place), join.key(x[update(place)]));
    } else {  // keys are computed with vectors
      constexpr std::int64_t kMany = 128;
      Key keys[kMany];
      for (; place < end; place += kMany) {
        const std::int64_t count = std::min(kMany, end - place);
        if (p.order.empty()) {
          for (std::int64_t k = 0; k < count; ++k) keys[k] = join.key(x[place + k]);
        } else {
          for (std::int64_t k = 0; k < count; ++k) keys[k] = join.key(x[update(place + k)]);
        }
        for (std::int64_t k = 0; k < count; ++k) add(update(place + k), keys[k]);
      }
    }
  }

  std::uint64_t row_of(std::int64_t update) const {
    return static_cast<std::uint64_t>(grains.indices[update] - p.rows.first - grains.first_row);
  }
  std::int64_t update(std::int64_t place) const {
    return p.order.empty() ? place : p.order[static_cast<std::size_t>(place)];
  }

  template <typename Join, typename Width>
  void add(Join join, typename Join::Key* HWY_RESTRICT sum, std::int64_t update,
           Width width) const {
    const auto* HWY_RESTRICT x =
        reinterpret_cast<const typename Join::Element*>(grains.updates) + update * width;
    for (std::int64_t k = 0; k < width; ++k) sum[k] = Join::join(sum[k], join.key(x[k]));
  }
};

struct TreeLoop {
  const ScatterProblem& p;
  std::int64_t rows;
  std::byte* tables;
  std::byte* result;

  template <typename Join>
  void operator()(Join join) const {
    using Key = typename Join::Key;
    const std::int64_t size = rows * p.inner;
    const std::int64_t stride = (rows + 1) * p.inner;
    const std::int64_t grains = std::ssize(p.leaf_ends);
    Key* const first = reinterpret_cast<Key*>(tables);
    for (std::int64_t half = 1; half < grains; half *= 2) {
      for (std::int64_t i = 0; i + half < grains; i += 2 * half) {
        Key* HWY_RESTRICT left = first + i * stride;
        const Key* HWY_RESTRICT right = left + half * stride;
        for (std::int64_t k = 0; k < size; ++k) left[k] = Join::join(left[k], right[k]);
      }
    }
    auto* const to = reinterpret_cast<typename Join::Element*>(result);
    for (std::int64_t k = 0; k < size; ++k) to[k] = join.value(first[k]);
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
