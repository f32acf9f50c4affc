// Joins of single elements into many rows; compiled once per instruction set.
#if defined(TESSERA_SCATTER_COLUMN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_SCATTER_COLUMN_INL_H_
#undef TESSERA_SCATTER_COLUMN_INL_H_
#else
#define TESSERA_SCATTER_COLUMN_INL_H_
#endif

#include <hwy/highway.h>

#include "compile/host/kernels/scatter/loops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// The updates of a range of rows, sorted by blocks of rows and, within a block, by grains. Updates
/// are copied, so that they are read in order after the sort. `T`: an integer with the bits of an
/// element.
template <typename T>
class SortedElements {
 public:
  struct Entry {
    std::uint32_t row;  // in its block
    T x;
  };

  SortedElements(const ScatterProblem& p, const ColumnPart& part)
      : p_(p), part_(part), grains_(static_cast<std::size_t>(std::ssize(p.leaf_ends))) {
    choose();
    count();
    sort();
  }
  std::span<const Entry> of(std::size_t block, std::size_t grain) const {
    const std::size_t bin = block * grains_ + grain;
    // Where a bin ends, after the sort.
    const std::uint32_t begin = bin == 0 ? 0 : bins_[bin - 1];
    return {entries_ + begin, bins_[bin] - begin};
  }
  bool has(std::size_t block) const {
    const std::uint32_t begin = block == 0 ? 0 : bins_[block * grains_ - 1];
    return bins_[(block + 1) * grains_ - 1] > begin;
  }

 private:
  /// Copies the updates of these rows to one place, in the order of the sum.
  void choose() {
    const auto size = static_cast<std::size_t>(p_.count) + kMostLanes;
    rows_ = grown(t_rows, size);
    chosen_ = grown(t_chosen, size);
    const auto* const x = reinterpret_cast<const T*>(part_.updates);
    std::size_t place = 0, found = 0;
    for (const std::int64_t end : p_.leaf_ends) {
      if (p_.order.empty()) {
        found = choose_vectors(x, place, static_cast<std::size_t>(end), found);
      } else {
        for (; place < static_cast<std::size_t>(end); ++place)
          found += choose_one(x, static_cast<std::size_t>(p_.order[place]), found);
      }
      place = static_cast<std::size_t>(end);
      grain_ends_.push_back(found);
    }
  }

  /// Writes update i in any case: a branch on whether it belongs to these rows would be
  /// unpredictable.
  HWY_INLINE std::size_t choose_one(const T* x, std::size_t i, std::size_t found) {
    const auto first = static_cast<std::uint32_t>(p_.rows.first + part_.first_row);
    const std::uint32_t row = static_cast<std::uint32_t>(part_.indices[i]) - first;
    rows_[found] = row;
    chosen_[found] = x[i];
    return row < part_.rows ? 1 : 0;
  }

  std::size_t choose_vectors(const T* x, std::size_t place, std::size_t end, std::size_t found) {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
    if constexpr (sizeof(T) == 4) {
      const hn::ScalableTag<std::uint32_t> d;
      const auto first = hn::Set(d, static_cast<std::uint32_t>(p_.rows.first + part_.first_row));
      const auto rows = hn::Set(d, static_cast<std::uint32_t>(part_.rows));
      const auto* const indices = reinterpret_cast<const std::uint32_t*>(part_.indices);
      const auto* const bits = reinterpret_cast<const std::uint32_t*>(x);
      auto* const to = reinterpret_cast<std::uint32_t*>(chosen_);
      for (; place + hn::Lanes(d) <= end; place += hn::Lanes(d)) {
        const auto row = hn::Sub(hn::LoadU(d, indices + place), first);
        const auto is_here = hn::Lt(row, rows);
        // Whole vectors are stored: a store of some lanes only is slow.
        hn::StoreU(hn::Compress(hn::LoadU(d, bits + place), is_here), d, to + found);
        hn::StoreU(hn::Compress(row, is_here), d, rows_ + found);
        found += hn::CountTrue(d, is_here);
      }
    }
#endif
    for (; place < end; ++place) found += choose_one(x, place, found);
    return found;
  }

  void count() {
    const std::size_t bins = grains_ * part_.blocks();
    bins_ = grown(t_bins, bins);
    std::fill_n(bins_, bins, 0);
    for (std::size_t grain = 0, i = 0; grain < grains_; ++grain) {
      for (; i < grain_ends_[grain]; ++i) bins_[bin(rows_[i], grain)] += 1;
    }
    std::uint32_t begin = 0;
    for (std::size_t i = 0; i < bins; ++i) begin += std::exchange(bins_[i], begin);
  }

  /// Takes updates of two grains in turns. If many updates belong to one block, each has to wait
  /// for the last one of its grain.
  void sort() {
    entries_ = grown(t_entries, grain_ends_.back());
    const auto begin = [&](std::size_t grain) { return grain == 0 ? 0 : grain_ends_[grain - 1]; };
    const std::size_t half = (grains_ + 1) / 2;
    for (std::size_t grain = 0; grain < half; ++grain) {
      std::size_t i = begin(grain);
      if (grain + half < grains_) {
        std::size_t j = begin(grain + half);
        for (; i < grain_ends_[grain] && j < grain_ends_[grain + half]; ++i, ++j) {
          place(i, grain);
          place(j, grain + half);
        }
        for (; j < grain_ends_[grain + half]; ++j) place(j, grain + half);
      }
      for (; i < grain_ends_[grain]; ++i) place(i, grain);
    }
  }
  HWY_INLINE void place(std::size_t i, std::size_t grain) {
    const std::uint32_t in_block = (std::uint32_t{1} << part_.shift) - 1;
    entries_[bins_[bin(rows_[i], grain)]++] = {rows_[i] & in_block, chosen_[i]};
  }

  std::size_t bin(std::uint32_t row, std::size_t grain) const {
    return static_cast<std::size_t>(row >> part_.shift) * grains_ + grain;
  }

  static constexpr std::size_t kMostLanes = 16;
  static thread_local inline std::vector<std::uint32_t> t_rows, t_bins;
  static thread_local inline std::vector<T> t_chosen;
  static thread_local inline std::vector<Entry> t_entries;

  const ScatterProblem& p_;
  const ColumnPart& part_;
  std::size_t grains_;
  std::vector<std::size_t> grain_ends_;  // in the chosen updates
  std::uint32_t* rows_ = nullptr;
  T* chosen_ = nullptr;
  std::uint32_t* bins_ = nullptr;  // block by block: where the next update of a grain goes
  Entry* entries_ = nullptr;
};

struct ColumnLoop {
  const ScatterProblem& p;
  const ColumnPart& part;

  template <typename Join>
  void operator()(Join join) const {
    using Key = typename Join::Key;
    using T = typename Join::Element;
    using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
    const SortedElements<Bits> sorted(p, part);
    const std::int64_t block_rows = std::int64_t{1} << part.shift;
    const auto stride = static_cast<std::size_t>(block_rows + 1);
    const auto grains = static_cast<std::size_t>(std::ssize(p.leaf_ends));
    std::vector<Key> tables(grains * stride);
    auto* to = reinterpret_cast<T*>(part.result);
    for (std::size_t block = 0; block < part.blocks(); ++block, to += block_rows) {
      const std::int64_t rows =
          std::min(block_rows, part.rows - static_cast<std::int64_t>(block) * block_rows);
      if (!sorted.has(block)) {
        std::fill_n(to, rows, join.value(Join::kStart));
        continue;
      }
      for (std::size_t grain = 0; grain < grains; ++grain) {
        Key* const table = tables.data() + grain * static_cast<std::size_t>(rows + 1);
        std::fill_n(table, rows, Join::kStart);
        for (const auto& entry : sorted.of(block, grain))
          table[entry.row] = Join::join(table[entry.row], join.key(std::bit_cast<T>(entry.x)));
      }
      TreeLoop{p, rows, reinterpret_cast<std::byte*>(tables.data()),
               reinterpret_cast<std::byte*>(to)}(join);
    }
  }
};

void JoinColumn(const ScatterProblem& problem, const ColumnPart& part) {
  with_join(problem.kind, problem.dtype, ColumnLoop{problem, part});
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
