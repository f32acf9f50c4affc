// The context in which a record's function writes StableHLO, and helpers that several records use.
#pragma once

#include <functional>
#include <string>

#include "ops/factors.h"
#include "ops/record.h"
#include "ops/stablehlo/tiles.h"

namespace tessera::ops::hlo {

/// One equation of a function. Values have the types of tiles; `function` has those of whole
/// arrays.
struct FormContext {
  Writer& w;
  const ir::Function& function;
  const Equation& equation;
  Values operands;
  std::vector<Type> results;
  /// Null where values have no shardings: then tiles are whole arrays.
  const Tiles* tiles;
  /// Whether the operands of bf16 products are converted to f32 first.
  bool widens_products;
  /// Whether the compiler knows cuDNN's attention kernels.
  bool fuses_attention;
  /// Dimensions of bf16 and f16 products are padded from this size on; 0: none is.
  std::int64_t pads_products_from;
  /// Writes the equations of a nested function and returns its outputs.
  std::function<Values(Writer&, const ir::Function&, const Values&)> call;
  /// What was written for an earlier value of the function.
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
  /// Operand i with `fill` after the elements that the device holds along these dimensions.
  Value masked_operand(std::size_t i, const Ints& dims, double fill);

  /// An operand cut to the rows that the op reads for the tile of its result.
  struct Rows {
    Value x;
    std::vector<bool> is_cut;  // per dimension; the others are whole
  };
  /// Row 0 of a cut dimension is the first row that index 0 of the result reads or, if the op reads
  /// in reverse, the first row that the last index reads. Rows that the device does not hold are
  /// `fill`. If the op reads the rows spread apart, the rows between them are `fill` too; such a
  /// dimension is not cut unless there is a `fill`.
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

/// Dimensions of a gather or a scatter whose slices are single elements or rows; see StableHLO.
struct IndexDims {
  std::int64_t dim;  // of the table
  Ints batch;        // paired dimensions of table and indices
  Ints rows;         // dimensions of the rows that are not those of indices
};
Value gathered(Writer& w, const Value& table, const Value& indices, const IndexDims& dims,
               Shape result);
/// `combine` is the operation on an element of the table and of an update.
Value scattered(Writer& w, const Value& table, const Value& indices, const Value& updates,
                const IndexDims& dims, std::string_view combine);
/// The result of a gather with the fill at indices out of range. Dimension `dim` of the table may
/// be split: a bitwise or then joins the results of all devices. `found` is what the device found
/// at the indices `local` of its own tile; `dims` are those of `found` that belong to the indices.
Value with_fill(FormContext& c, const Value& found, const Value& local, std::size_t dim,
                const Ints& dims);
/// The indices in operand `i`, relative to the device's tile of `table` along dimension `dim`.
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
