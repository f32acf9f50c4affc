// Ops with nested functions, in the form in which the stages of compilation read and write them.
#pragma once

#include "ir/builder.h"
#include "ir/pass.h"
#include "ops/record.h"

namespace tessera::ops {

using ir::Function;
using FunctionPtr = std::shared_ptr<const Function>;

/// scan: the operands are `num_consts` constants, then `num_carry` initial carries, then the arrays
/// that are scanned along dimension 0. The body maps (constants, carries, slices) to (carries,
/// slices of the stacked results).
struct ScanParts {
  std::int64_t length = 0;
  std::size_t num_consts = 0;
  std::size_t num_carry = 0;
  bool is_reverse = false;        // runs from the last slice to the first
  bool are_microbatches = false;  // the iterations are microbatches: a pipeline may run them in
                                  // stages

  std::size_t first_scanned() const { return num_consts + num_carry; }
};
ScanParts scan_parts(const Equation& equation);
std::vector<ValueId> scan(Builder& b, const ScanParts& parts, FunctionPtr body,
                          std::vector<ValueId> operands);

/// while: operands are `num_consts` constants, then the initial carries. Both the condition and the
/// body take all of them.
std::vector<ValueId> while_loop(Builder& b, std::size_t num_consts, FunctionPtr condition,
                                FunctionPtr body, std::vector<ValueId> operands);

/// cond: operand 0 is the i32 index of the branch, which maps the other operands to the results. An
/// index out of range is clamped.
std::vector<ValueId> cond(Builder& b, std::vector<FunctionPtr> branches,
                          std::vector<ValueId> operands);

/// call: applies the body, which has a name, to the operands.
std::vector<ValueId> call(Builder& b, std::string name, FunctionPtr body,
                          std::vector<ValueId> operands);

/// remat: a call whose values are recomputed for its derivative; see differentiate/remat.h.
std::vector<ValueId> remat(Builder& b, std::string policy, FunctionPtr body,
                           std::vector<ValueId> operands);

/// custom_vjp: operands are `num_args` arguments, then constants. `primal` maps all operands to the
/// results, `forward` to (results, residuals), `backward` maps (residuals, constants, cotangents
/// of the results) to the cotangents of the arguments.
struct CustomVjpParts {
  FunctionPtr primal, forward, backward;
  std::size_t num_args = 0;
};
std::vector<ValueId> custom_vjp(Builder& b, const CustomVjpParts& parts,
                                std::vector<ValueId> operands);
CustomVjpParts custom_vjp_parts(const Equation& equation);

/// optimization_barrier: returns its operands. No pass may merge the results with other values, and
/// every result is available only after all operands.
std::vector<ValueId> optimization_barrier(Builder& b, std::vector<ValueId> operands);

/// stage_end: returns `x` and marks where a stage of a pipeline ends or, with `is_backward`, where
/// its backward pass begins.
ValueId stage_end(Builder& b, ValueId x, std::int64_t stage, bool is_backward = false);

enum class Dissolve : std::uint8_t {
  calls,     // call
  all_calls  // call, remat and custom_vjp, once nothing is differentiated any more; add_any becomes
             // add
};
/// The function with calls of this kind inlined, also inside nested functions.
Function dissolve_calls(Function function, Dissolve which);
/// The function, including nested functions, in which a transpose of elementwise work on constants
/// and broadcasts is replaced by the same work in the transposed order.
Function move_transposes(Function function);
/// The function, including nested functions, in which the sum of an array and of an update of zeros
/// is replaced by an update of the array, where that gives the same bits.
Function add_updates_in_place(Function function);
/// The function, including nested functions, with loop-invariant values computed before their loop.
/// Values that are larger than what they are computed from stay in the loop, unless they take long
/// to compute.
Function hoist_loop_invariants(Function function);
/// The function, including nested functions, with products of few rows computed for all rounds of a
/// scan at once: before the scan if they multiply scanned arrays by loop-invariant values, after it
/// if their results are only stacked.
Function move_products_out_of_loops(Function function);
/// The function, including nested functions, in which a matrix that a loop multiplies by few rows
/// is transposed before the loop if the terms of each sum are adjacent in memory.
Function transpose_before_loops(Function function);
/// The function, including nested functions, in which products that a scan adds to a carry in each
/// round are computed after the loop, for all rounds at once. This changes the order of the sums.
Function sum_products_after_loops(Function function);
/// The function with its effects (ir/effects.h) ordered by their operands: each takes the token of
/// the one before.
Function with_ordered_effects(Function function);
/// Calls the function of a host_callback or a pure_callback with its operands, and lets it write
/// its results. Neither list includes tokens. Without a function, the results are zeros.
void call_host(const Attributes& attributes, std::vector<Type> types,
               std::vector<const std::byte*> operands, std::vector<std::byte*> results);
/// The simplification passes for programs that are not differentiated any more: first inlining,
/// then the passes of src/ir.
std::vector<ir::Pass> simplify_passes();

/// The number of floating point operations of one run of the function.
double flops_of(const Function& function);

}  // namespace tessera::ops
