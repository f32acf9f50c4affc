// Declarations that the files of this folder share.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ops/body_rules.h"
#include "ops/control/control.h"
#include "ops/host_array.h"
#include "ops/rules.h"

namespace tessera::ops {

extern const OpRecord pure_callback_op;

ir::Bodies bodies(FunctionPtr body);
ScanParts read_scan(const Attributes& attributes);
Attributes scan_attributes(const ScanParts& parts, FunctionPtr body);

/// Whether the equation is a scan of more than one round. A scan over microbatches does not count:
/// a pipeline may run its rounds in stages.
bool is_scan_of_rounds(const Equation& equation);

/// The function after `replace` has seen each equation. `replace` may emit other equations instead
/// and return the values that take the place of the equation's results, or it may change the
/// equation itself.
Function with_replaced(
    Function f,
    const std::function<std::optional<std::vector<ValueId>>(Builder&, Equation&)>& replace);

/// Calls `change` for each loop from which computations may be hoisted. `change` appends what it
/// hoists to `around`, the function so far, and returns whether it has changed the loop.
Function with_changed_loops(Function f,
                            const std::function<bool(Equation& loop, Function& around)>& change);

/// The product of the sizes of a product's operand, `lhs` or `rhs`, along all dimensions except
/// those of the batch and of the sum.
std::int64_t free_extent(const Type& operand, const Equation& product, const std::string& side);

/// Whether loop-invariant values of this loop may be computed before it.
bool has_hoistable_rounds(const Equation& equation);

/// Computes values of a loop's body before the loop, at the end of `around`. They must be
/// loop-invariant.
void compute_before(Equation& loop, Function& around, const std::vector<ValueId>& values);

/// The body with inputs from number `at` on in place of these values.
FunctionPtr with_inputs(Function body, std::size_t at, const std::vector<ValueId>& values);

/// The single nested function in the attribute; fails if the attribute holds anything else.
const Function& body_of(const ShapeContext& c, std::string_view attribute);
/// The result types of an equation whose body takes its operands and returns its results.
std::vector<Type> call_shape(const ShapeContext& c);
std::vector<HostArray> call_reference(const ReferenceContext& c);
double call_cost(const Attributes& attributes, const std::vector<Type>& operands,
                 const std::vector<Type>& results);
/// Parses a body for samples; `text` is what follows `function body[...]`.
FunctionPtr body_from(const std::string& text);

/// The flow of an equation whose body runs once, takes its operands and returns its results.
ir::BodyFlow call_flow(const Attributes& attributes, std::size_t num_operands);

// Their StableHLO forms.
std::vector<hlo::Value> barrier_form(hlo::FormContext& c);
std::vector<hlo::Value> cond_form(hlo::FormContext& c);
std::vector<hlo::Value> scan_form(hlo::FormContext& c);
std::vector<hlo::Value> while_form(hlo::FormContext& c);
/// The function in attribute `body`, written in place.
StableHloRule call_form(const char* body);

Samples call_samples();
Samples cond_samples();
Samples custom_vjp_samples();
Samples remat_samples();
Samples scan_samples();
Samples while_samples();

}  // namespace tessera::ops
