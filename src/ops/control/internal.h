// Declarations that the files of this folder share.
#pragma once

#include <string>

#include "ops/body_rules.h"
#include "ops/control/control.h"
#include "ops/host_array.h"
#include "ops/rules.h"

namespace tessera::ops {

extern const OpRecord pure_callback_op;

ir::Bodies bodies(FunctionPtr body);
ScanParts read_scan(const Attributes& attributes);
Attributes scan_attributes(const ScanParts& parts, FunctionPtr body);

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

// Their StableHLO.
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
