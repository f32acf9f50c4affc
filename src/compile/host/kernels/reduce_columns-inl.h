// Vector loops for sums along columns; compiled once per instruction set.

#if defined(TESSERA_REDUCE_COLUMNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_REDUCE_COLUMNS_INL_H_
#undef TESSERA_REDUCE_COLUMNS_INL_H_
#else
#define TESSERA_REDUCE_COLUMNS_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "compile/host/kernels/reduce_internal.h"
#include "compile/host/kernels/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <typename T>
using Columns = hn::CappedTag<T, 16>;
template <typename T>
constexpr std::int64_t kWide = HWY_MIN(hn::MaxLanes(Columns<T>()), 16);
constexpr std::int64_t kAheadBytes = 16 * 1024;  // how far prefetches are ahead of reads

/// Prefetches memory in order, whatever the order of the loops. Processors predict one stream
/// better than several.
template <typename T>
class Ahead {
 public:
  /// nullptr: prefetches nothing.
  explicit Ahead(const T* from) : at_(from) {}
  HWY_INLINE void Fetch(std::int64_t count) {
    constexpr std::int64_t kLine = 64 / sizeof(T);
    if (at_ == nullptr) return;
    for (std::int64_t i = 0; i < count; i += kLine) hwy::Prefetch(at_ + i);
    at_ += count;
  }

 private:
  const T* at_;
};

/// Adds kRows rows in one pass over the sums.
template <std::int64_t kRows, typename T>
HWY_INLINE void AddSomeRows(const T* from, std::int64_t stride, std::int64_t columns, T* sum,
                            Ahead<T>& ahead) {
  const Columns<T> d;
  std::int64_t c = 0;
  for (; c + kWide<T> <= columns; c += kWide<T>) {
    ahead.Fetch(kRows * kWide<T>);
    auto x = hn::LoadU(d, sum + c);
    for (std::int64_t r = 0; r < kRows; ++r) x = hn::Add(x, hn::LoadU(d, from + r * stride + c));
    hn::StoreU(x, d, sum + c);
  }
  ahead.Fetch(kRows * (columns - c));
  for (; c < columns; ++c) {
    for (std::int64_t r = 0; r < kRows; ++r) sum[c] += from[r * stride + c];
  }
}

template <typename T>
HWY_INLINE void AddRows(const T* from, std::int64_t rows, const ColumnRuns& all, T* sum,
                        Ahead<T>& ahead) {
  constexpr std::int64_t kRows = 4;
  const auto at = [&](std::int64_t row) { return from + row * all.row_stride; };
  std::int64_t row = 0;
  for (; row + kRows <= rows; row += kRows) {
    AddSomeRows<kRows>(at(row), all.row_stride, all.columns, sum, ahead);
  }
  for (; row < rows; ++row) AddSomeRows<1>(at(row), 0, all.columns, sum, ahead);
}

/// Adds the first `count` terms of each of kSquare lines to the sums of these lines.
template <class Load>
HWY_INLINE SquareRow AddSquare(SquareRow sums, std::int64_t count, Load load) {
  SquareRow square[kSquare];
  for (std::int64_t i = 0; i < kSquare; ++i) square[i] = load(i);
  TransposeSquare(square);
  for (std::int64_t i = 0; i < kSquare; ++i) {
    if (i < count) sums = hn::Add(sums, square[i]);
  }
  return sums;
}

/// For sums whose terms are adjacent in memory: each column is a line, in which the terms of a run
/// follow one another.
HWY_INLINE void AddLines(const float* from, std::span<const ColumnRun> runs, const ColumnRuns& all,
                         float* sums, Ahead<float>& ahead) {
  const Square d;
  const std::int64_t stride = all.column_stride;
  std::int64_t c = 0;
  for (; c + kSquare <= all.columns; c += kSquare) {
    for (const ColumnRun& run : runs) {
      const float* lines = from + run.from + c * stride;
      float* to = sums + run.sums + c;
      ahead.Fetch(kSquare * run.rows);
      SquareRow sum = hn::LoadU(d, to);
      std::int64_t row = 0;
      for (; row + kSquare <= run.rows; row += kSquare) {
        sum = AddSquare(sum, kSquare,
                        [&](std::int64_t i) { return hn::LoadU(d, lines + i * stride + row); });
      }
      if (const std::int64_t rest = run.rows - row; rest > 0) {
        const auto mask = hn::FirstN(d, static_cast<std::size_t>(rest));
        sum = AddSquare(sum, rest, [&](std::int64_t i) {
          return hn::MaskedLoad(mask, d, lines + i * stride + row);
        });
      }
      hn::StoreU(sum, d, to);
    }
  }
  for (const ColumnRun& run : runs) {
    ahead.Fetch((all.columns - c) * run.rows);
    for (std::int64_t i = c; i < all.columns; ++i) {
      for (std::int64_t row = 0; row < run.rows; ++row) {
        sums[run.sums + i] += from[run.from + i * stride + row];
      }
    }
  }
}

/// The number of runs, from the first one on, that follow one another without a gap.
inline std::size_t NumContinued(std::span<const ColumnRun> runs) {
  std::size_t count = 1;
  while (count < runs.size() && runs[count].from == runs[count - 1].from + runs[count - 1].rows) {
    ++count;
  }
  return count;
}

/// For runs of rows of kVectors whole vectors: the sums of a run stay in registers.
template <std::int64_t kVectors, typename T>
HWY_INLINE void AddNarrowRuns(const T* HWY_RESTRICT from, const ColumnRuns& all,
                              T* HWY_RESTRICT sums) {
  const Columns<T> d;
  for (const ColumnRun& run : all.runs) {
    const T* HWY_RESTRICT row = from + run.from;
    hn::Vec<Columns<T>> sum[static_cast<std::size_t>(kVectors)];
    for (std::int64_t v = 0; v < kVectors; ++v)
      sum[v] = hn::LoadU(d, sums + run.sums + v * kWide<T>);
    for (std::int64_t r = 0; r < run.rows; ++r, row += all.row_stride) {
      for (std::int64_t v = 0; v < kVectors; ++v) {
        sum[v] = hn::Add(sum[v], hn::LoadU(d, row + v * kWide<T>));
      }
    }
    for (std::int64_t v = 0; v < kVectors; ++v)
      hn::StoreU(sum[v], d, sums + run.sums + v * kWide<T>);
  }
}

/// Returns false unless a row consists of a few whole vectors.
template <typename T>
HWY_INLINE bool AddNarrow(const T* from, const ColumnRuns& all, T* sums) {
  if (all.column_stride != 1 || all.columns % kWide<T> != 0) return false;
  switch (all.columns / kWide<T>) {
    case 1:
      AddNarrowRuns<1>(from, all, sums);
      return true;
    case 2:
      AddNarrowRuns<2>(from, all, sums);
      return true;
    case 4:
      AddNarrowRuns<4>(from, all, sums);
      return true;
    case 8:
      AddNarrowRuns<8>(from, all, sums);
      return true;
    default:
      return false;
  }
}

template <typename T>
HWY_INLINE void AddColumnRunsOf(const T* from, const ColumnRuns& all, T* sums) {
  for (std::int64_t i = 0; i < all.repeats; ++i, from += all.repeat_stride) {
    if (!all.is_dense && AddNarrow(from, all, sums)) continue;
    constexpr std::int64_t kAhead = kAheadBytes / sizeof(T);
    Ahead<T> ahead(all.is_dense ? from + all.runs.front().from + kAhead : nullptr);
    if (std::is_same_v<T, double> || all.column_stride == 1) {
      for (const ColumnRun& run : all.runs) {
        AddRows(from + run.from, run.rows, all, sums + run.sums, ahead);
      }
      continue;
    }
    if constexpr (std::is_same_v<T, float>) {
      for (std::span<const ColumnRun> rest = all.runs; !rest.empty();) {
        const std::size_t count = NumContinued(rest);
        AddLines(from, rest.first(count), all, sums, ahead);
        rest = rest.subspan(count);
      }
    }
  }
}

void AddColumnRuns(const float* from, const ColumnRuns& all, float* sums) {
  AddColumnRunsOf(from, all, sums);
}
void AddWideColumnRuns(const double* from, const ColumnRuns& all, double* sums) {
  AddColumnRunsOf(from, all, sums);
}

template <typename T>
HWY_INLINE void AddRowOf(T* a, const T* b, std::int64_t count) {
  Ahead<T> ahead(nullptr);
  AddSomeRows<1>(b, 0, count, a, ahead);
}

void AddRow(float* a, const float* b, std::int64_t count) { AddRowOf(a, b, count); }
void AddWideRow(double* a, const double* b, std::int64_t count) { AddRowOf(a, b, count); }

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
