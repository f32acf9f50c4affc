// Ops with nested functions, in the form in which the stages of compilation read and write them.
#pragma once

#include "ir/builder.h"
#include "ir/pass.h"
#include "ops/record.h"

namespace tessera::ops {

using ir::Function;
using FunctionPtr = std::shared_ptr<const Function>;

/// scan: operands are `num_consts` constants, `num_carry` initial carries, then the arrays that are
/// scanned along dimension 0. The body maps (constants, carries, slices) to (carries, slices of the
/// stacked results).
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
/// The function with transposes of elementwise work on constants and broadcasts replaced by that
/// work in the other order, also inside nested functions.
Function move_transposes(Function function);
/// The function with sums of an array and of an update of zeros replaced by updates of the array,
/// also inside nested functions, where that gives the same bits.
Function add_updates_in_place(Function function);
/// The function with what is the same in each round of a loop computed before it, also inside
/// nested functions. Results that are larger than what they are made from stay, unless they take
/// long.
Function hoist_loop_invariants(Function function);
/// The function with products of few rows made for all rounds of a scan at once, also inside nested
/// functions: before the scan where they multiply what is scanned with what is the same in all
/// rounds, after it where their results are only stacked.
Function move_products_out_of_loops(Function function);
/// The function in which a matrix that a loop multiplies few rows with is transposed before the
/// loop if the terms of each sum are next to each other in memory. Also inside nested functions.
Function transpose_before_loops(Function function);
/// The function with products that its scans add to their carries in each round computed after the
/// loop, for all rounds at once, also inside nested functions. Sums have another order then.
Function sum_products_after_loops(Function function);
/// The function whose effects (ir/effects.h) are in an order that their operands give: each takes
/// the token of the one before.
Function with_ordered_effects(Function function);
/// Calls the function of a host_callback or a pure_callback with its operands, and lets it write
/// its results; tokens are in neither. Without a function results are zeros.
void call_host(const Attributes& attributes, std::vector<Type> types,
               std::vector<const std::byte*> operands, std::vector<std::byte*> results);
/// The simplification passes for programs that are not differentiated any more: first inlining,
/// then the passes of src/ir.
std::vector<ir::Pass> simplify_passes();

/// The number of floating point operations of one run of the function.
double flops_of(const Function& function);

}  // namespace tessera::ops
