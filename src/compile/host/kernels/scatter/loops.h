// The loops of scatters over updates; they are compiled once per instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "compile/host/kernels/scatter/hits.h"

namespace tessera::kernels {

/// A range of columns of rows whose updates are sorted.
struct RowBlock {
  const std::byte* updates;     // of all rows and columns
  std::byte* result;            // at the first column of the first row
  const std::uint32_t* begins;  // per row, then the end of the last one: numbers of hits
  const Hit* hits;
  std::int64_t rows;
  std::int64_t column;
  std::int64_t columns;

  /// The first row from `row` on that has an update, or `rows`.
  std::int64_t next_with_updates(std::int64_t row) const {
    constexpr std::int64_t kMany = 16;
    while (row + kMany <= rows && begins[row] == begins[row + kMany]) row += kMany;
    while (row < rows && begins[row] == begins[row + 1]) ++row;
    return row;
  }
};
/// Writes the rows.
void join_rows(const ScatterProblem& problem, const RowBlock& block);

/// Grains, each of which has a table of a range of rows. A table has one more row, for the updates
/// of other rows.
struct GrainTables {
  const std::int32_t* indices;  // nullptr: `hits` are the updates of the rows
  const std::byte* updates;
  std::byte* tables;       // of the first grain of all
  std::int64_t first_row;  // of those that this device holds
  std::int64_t rows;
  std::int64_t first, end;    // grains
  std::span<const Hit> hits;  // in the order of the sum
};
/// Writes the tables of the grains [first, end), as keys.
void fill_tables(const ScatterProblem& problem, const GrainTables& grains);
/// Joins the tables of all grains by the tree and writes the rows.
void join_tables(const ScatterProblem& problem, std::int64_t rows, std::byte* tables,
                 std::byte* result);

/// A range of rows of single elements.
struct ColumnPart {
  const std::int32_t* indices;
  const std::byte* updates;
  std::byte* result;       // at the first row
  std::int64_t first_row;  // of those that this device holds
  std::int64_t rows;
  int shift;  // the rows are sorted by blocks of 2^shift

  std::size_t blocks() const { return static_cast<std::size_t>(((rows - 1) >> shift) + 1); }
};
/// Writes the rows.
void join_column(const ScatterProblem& problem, const ColumnPart& part);
/// The most memory that a thread needs for join_column().
std::int64_t column_bytes(const ScatterProblem& problem, int shift);

}  // namespace tessera::kernels
