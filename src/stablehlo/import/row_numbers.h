// What gathers and scatters have in common. In StableHLO they select windows of an array by vectors
// of indices; in the IR they select rows of a table. So the dimensions that indices refer to become
// the rows of a table, and the indices become row numbers.
#pragma once

#include "stablehlo/import/importer.h"

namespace tessera::stablehlo {

bool has(const Ints& list, std::int64_t value);
std::size_t place_of(const Ints& list, std::int64_t value);
std::int64_t product(const Shape& shape);
Ints joined(Ints first, const Ints& second);
Shape sizes_of(const Shape& shape, const Ints& dims);
/// The dimensions below `rank` that are not in `dims`.
Ints others(std::size_t rank, const Ints& dims);
void check_dims(Context& c, const Ints& dims, std::size_t rank);
/// Operations of old releases have no such attribute.
Ints batch_dims(Context& c, const char* attribute);

/// What a gather or a scatter says about its array and its indices.
struct Indexing {
  ValueId indices = ir::kNoValue;  // [lead.., vector], i32
  Shape lead = {};
  Shape shape = {};      // of the array
  Ints window = {};      // sizes of the windows
  Ints named = {};       // per element of a vector, the dimension that it indexes
  Ints batch = {};       // dimensions of the array that are batch dimensions
  Ints lead_batch = {};  // the dimensions of lead that are paired with them
  bool is_clamped = false;
};

/// Moves the dimension of the index vectors to the end.
void set_indices(Context& c, Indexing& to, ValueId indices, std::int64_t vector_dim);
void check_indexing(Context& c, const Indexing& in);
/// Adds an index for a dimension whose windows all begin at 0.
void name_dim(Context& c, Indexing& in, std::int64_t dim);
/// Also indexes the dimensions between the indexed ones, if that takes fewer numbers than the array
/// has elements. Otherwise the whole array is transposed.
void name_between(Context& c, Indexing& in);

/// Row numbers of the table whose rows are the dimensions `dims`, ascending: [lead.., windows..].
/// Windows of one element have no dimension.
struct Rows {
  ValueId numbers = ir::kNoValue;
  Ints dims = {};
  Ints windows = {};
};
Rows row_numbers(Context& c, const Indexing& in);

/// An array as a table [before.., rows, after..]: in place if the dimensions of the rows are
/// adjacent, otherwise with the rows first.
class Table {
 public:
  Table(const Shape& shape, const Rows& rows);

  std::int64_t num_rows() const { return num_rows_; }
  /// The dimension of the rows.
  std::int64_t dim() const { return dim_; }
  /// The dimensions of the array before and after the rows.
  const Ints& rest() const { return rest_; }
  /// Their sizes.
  Shape row() const { return sizes_of(shape_, rest_); }

  ValueId of(ir::Builder& b, ValueId array) const;
  ValueId array(ir::Builder& b, ValueId table) const;
  /// [before.., numbers.., after..] from and to [numbers.., before.., after..].
  ValueId first(ir::Builder& b, ValueId lines, std::int64_t num_dims) const;
  ValueId in_place(ir::Builder& b, ValueId lines, std::int64_t num_dims) const;

 private:
  Shape shape_;
  Ints order_;  // of the dimensions of the array
  Ints rest_;
  std::int64_t num_rows_;
  std::int64_t dim_;
};

}  // namespace tessera::stablehlo
