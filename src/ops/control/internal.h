// What the files of this folder share.
#pragma once

#include <string>

#include "ops/body_rules.h"
#include "ops/control/control.h"
#include "ops/host_array.h"
#include "ops/rules.h"

namespace tessera::ops {

ir::Bodies bodies(FunctionPtr body);
ScanParts read_scan(const Attributes& attributes);
Attributes scan_attributes(const ScanParts& parts, FunctionPtr body);

/// The one nested function of the attribute; fails where it is anything else.
const Function& body_of(const ShapeContext& c, std::string_view attribute);
/// The results of an equation whose body takes its operands and gives its results.
std::vector<Type> call_shape(const ShapeContext& c);
std::vector<HostArray> call_reference(const ReferenceContext& c);
double call_cost(const Attributes& attributes, const std::vector<Type>& operands,
                 const std::vector<Type>& results);
/// A function of the text behind `function body[...]`, for samples.
FunctionPtr body_from(const std::string& text);

/// Of an equation whose body takes its operands, once, and gives its results.
ir::BodyFlow call_flow(const Attributes& attributes, std::size_t num_operands);

Samples call_samples();
Samples cond_samples();
Samples custom_vjp_samples();
Samples remat_samples();
Samples scan_samples();
Samples while_samples();

}  // namespace tessera::ops
