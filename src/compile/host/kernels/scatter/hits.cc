#include "compile/host/kernels/scatter/hits.h"

namespace tessera::kernels {

namespace {

constexpr std::int64_t kBins = 256;
constexpr std::int64_t kSample = 4096;

/// A number below `most` that has no period in i.
std::int64_t scattered_below(std::int64_t i, std::int64_t most) {
  const std::uint64_t mixed = static_cast<std::uint64_t>(i) * 0x9E3779B97F4A7C15U;
  return static_cast<std::int64_t>((mixed >> 32) % static_cast<std::uint64_t>(most));
}

}  // namespace

RowCuts::RowCuts(const ScatterProblem& p, const std::int32_t* indices)
    : rows_(p.rows.count), inner_(p.inner) {
  const std::int64_t size = std::min(p.count, kSample);
  if (size == 0) return;
  const std::int64_t step = p.count / size;
  updates_each_ = static_cast<double>(p.count) / static_cast<double>(size);
  for (std::int64_t i = 0; i < size; ++i) {
    const std::int64_t row = indices[i * step + scattered_below(i, step)];
    if (p.rows.has(row)) sample_.push_back(row - p.rows.first);
  }
}

double RowCuts::weight(std::int64_t rows, std::int64_t hits) const {
  return static_cast<double>(rows) + static_cast<double>(hits) * updates_each_;
}

LinePlace RowCuts::at(std::int64_t part, std::int64_t parts) const {
  if (part == 0) return {};
  if (part == parts) return {.row = rows_, .column = 0};
  double left =
      weight(rows_, std::ssize(sample_)) * static_cast<double>(part) / static_cast<double>(parts);
  Span span{0, rows_};
  std::vector<std::int64_t> hits(static_cast<std::size_t>(kBins));
  while (span.end - span.first > 1) {  // narrows the span to the bin that has the cut
    const std::int64_t each = (span.end - span.first + kBins - 1) / kBins;
    std::fill(hits.begin(), hits.end(), 0);
    for (const std::int64_t row : sample_) {
      if (row < span.first || row >= span.end) continue;
      hits[static_cast<std::size_t>((row - span.first) / each)] += 1;
    }
    Span bin{span.first, std::min(span.first + each, span.end)};
    for (std::size_t i = 0;; ++i) {
      const double of_bin = weight(bin.end - bin.first, hits[i]);
      if (left < of_bin || bin.end == span.end) break;
      left -= of_bin;
      bin = {bin.end, std::min(bin.end + each, span.end)};
    }
    span = bin;
  }
  // Columns are cut between cache lines.
  constexpr std::int64_t kColumns = 16;
  const std::int64_t hits_of_row = std::ranges::count(sample_, span.first);
  const double share = std::min(left / weight(1, hits_of_row), 1.0);
  const auto column = static_cast<std::int64_t>(share * static_cast<double>(inner_));
  return {.row = span.first, .column = column / kColumns * kColumns};
}

namespace {

std::uint64_t blocks_of(std::int64_t rows, int shift) {
  return (static_cast<std::uint64_t>(rows) + (std::uint64_t{1} << shift) - 1) >> shift;
}

thread_local std::vector<std::uint32_t> t_begins;
thread_local std::vector<Hit> t_found;
thread_local std::vector<Hit> t_hits;

}  // namespace

std::int64_t SortedHits::bytes(const ScatterProblem& p, int shift) {
  const auto blocks = static_cast<std::int64_t>(blocks_of(p.rows.count, shift));
  return static_cast<std::int64_t>(sizeof(std::uint32_t)) * (blocks + 2) +
         static_cast<std::int64_t>(sizeof(Hit)) * (2 * p.count + kAhead + 1);
}

SortedHits::SortedHits(const ScatterProblem& p, const std::int32_t* indices, std::int64_t first,
                       std::int64_t end, int shift)
    : first_(first), end_(end) {
  const auto rows = static_cast<std::uint64_t>(end - first);
  const std::uint64_t blocks = blocks_of(end - first, shift);
  std::uint32_t* const begins = grown(t_begins, blocks + 2);
  std::fill_n(begins, blocks + 2, 0);
  // ends[block + 1] counts, so that in the end ends[block] is the end of a block.
  std::uint32_t* const ends = begins + 1;
  Hit* const found = grown(t_found, static_cast<std::size_t>(p.count) + 1);
  std::size_t count = 0;
  for (std::int64_t i = 0; i < p.count; ++i) {
    const std::int64_t update = p.order.empty() ? i : p.order[static_cast<std::size_t>(i)];
    const auto row = static_cast<std::uint64_t>(indices[update] - p.rows.first - first);
    // Written in any case: a branch on whether it is one of the rows would be unpredictable.
    found[count] = {static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(i)};
    count += row < rows ? 1 : 0;
  }
  for (std::size_t i = 0; i < count; ++i) ends[(found[i].row >> shift) + 1] += 1;
  for (std::size_t block = 1; block <= blocks; ++block) ends[block] += ends[block - 1];
  Hit* const hits = grown(t_hits, count + kAhead);
  const std::uint32_t in_block = (std::uint32_t{1} << shift) - 1;
  for (std::size_t i = 0; i < count; ++i) {
    hits[ends[found[i].row >> shift]++] = {found[i].row & in_block, found[i].place};
  }
  std::fill_n(hits + count, kAhead, Hit{});
  begins_ = begins;
  hits_ = hits;
}

}  // namespace tessera::kernels
