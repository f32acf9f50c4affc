// What the function of a record that writes StableHLO gets, and helpers that several records use.
#pragma once

#include <functional>
#include <string>

#include "ops/factors.h"
#include "ops/record.h"
#include "ops/stablehlo/tiles.h"

namespace tessera::ops::hlo {

/// One equation of a function. Types of values are those of tiles; `function` has the whole arrays.
struct FormContext {
  Writer& w;
  const ir::Function& function;
  const Equation& equation;
  Values operands;
  std::vector<Type> results;
  /// Null where values have no shardings: then tiles are whole arrays.
  const Tiles* tiles;
  /// Whether operands of products of bf16 become f32 first.
  bool widens_products;
  /// Whether the compiler knows cuDNN's kernels of attention.
  bool fuses_attention;
  /// The smallest dimension of products of bf16 and f16 that is padded; 0: none is.
  std::int64_t pads_products_from;
  /// Writes the equations of a nested function and returns its outputs.
  std::function<Values(Writer&, const ir::Function&, const Values&)> call;
  /// What was written for a value of the function that was computed before.
  std::function<Value(ir::ValueId)> value;

  const Attributes& attributes() const { return equation.attributes; }
  const Value& x(std::size_t i = 0) const { return operands[i]; }
  const Shape& whole(ir::ValueId id) const { return function.type(id).shape; }
  /// Throws UserError: the equation has no form.
  [[noreturn]] void fail(const std::string& why, const std::string& cure) const;

  /// An operand of a product.
  Value factor(const Value& x) const;
  /// What devices hold of a dimension of a value.
  Ranges ranges(ir::ValueId id, std::size_t dim) const;
  /// Whether devices hold different indices of the dimension.
  bool is_split(ir::ValueId id, std::size_t dim) const;
  /// The first index of the dimension that the device holds: i32[].
  Value start(ir::ValueId id, std::size_t dim);
  /// Operand i with `fill` behind what the device holds along these dimensions.
  Value masked_operand(std::size_t i, const Ints& dims, double fill);

  /// An operand cut to the rows that the op reads for the tile of its result.
  struct Rows {
    Value x;
    std::vector<bool> is_cut;  // per dimension; the others are whole
  };
  /// Row 0 of a cut dimension is the first row that index 0 of the result reads, or the last one of
  /// the result where it reads in reverse. Rows that the device does not hold are `fill`. So are
  /// those between the rows of a dimension that is read spread; without `fill` it is not cut.
  Rows rows_of(std::size_t i, const Value* fill = nullptr);
};

// Forms that several records share.

/// Adds, multiplies, ... along the attribute `dims`; `name` is the operation on two elements.
StableHloRule reduce_form(const std::string& name);
/// The same over windows, with the attributes `window` and `stride`.
StableHloRule reduce_window_form(const std::string& name);
/// The same from the beginning of dimension `dim` to each element, or from its end with `reverse`.
StableHloRule cumulative_form(const std::string& name);

/// Sorts all values along `dim`; `before` says whether the first of two rows comes first.
using Before = std::function<Value(Writer&, const Values& pairs)>;
Values sorted(Writer& w, const Values& xs, std::size_t dim, const Before& before);
/// Ascending, NaN last; zeros are equal.
Value is_less(Writer& w, const Value& x, const Value& y);

/// Dimensions of a gather or a scatter of lines of one element or of rows, see StableHLO.
struct IndexDims {
  std::int64_t dim;  // of the table
  Ints batch;        // dimensions of table and indices that go together
  Ints rows;         // dimensions of the rows that are no indices
};
Value gathered(Writer& w, const Value& table, const Value& indices, const IndexDims& dims,
               Shape result);
/// `combine` is the operation on an element of the table and of an update.
Value scattered(Writer& w, const Value& table, const Value& indices, const Value& updates,
                const IndexDims& dims, std::string_view combine);
/// The fill of a gather at these indices of a table whose dimension `dim` may be split: the results
/// of all devices are joined by a bitwise or. `found` is what the device found at the indices
/// `local` of its own tile; `dims` are those of `found` that belong to the indices.
Value with_fill(FormContext& c, const Value& found, const Value& local, std::size_t dim,
                const Ints& dims);
/// The indices of operand `i` in the tile that the device holds of dimension `dim` of `table`.
Value local_indices(FormContext& c, std::size_t i, ir::ValueId table, std::size_t dim);

/// threefry2x32 of two counters under two words of keys, all of one shape.
std::pair<Value, Value> threefry(Writer& w, const Value& high_key, const Value& low_key,
                                 const Value& high, const Value& low);

// Forms that exchange data between devices.
/// Moves tiles, or reduces them over devices, as the shardings of operand and result say.
Values moved(FormContext& c);
/// The slices of a dimension in another order.
Values permuted(FormContext& c);

}  // namespace tessera::ops::hlo
