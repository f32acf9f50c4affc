// remat, custom_vjp and named calls.
#include <fmt/format.h>

#include <tessera/error.h>
#include <tessera/transform.h>

#include "api/inspect/op_by_op.h"
#include "api/transform/nested.h"
#include "ops/control/control.h"

namespace tessera::detail {

namespace {

std::string name_of(RematPolicy policy) {
  constexpr const char* kNames[] = {"nothing_saveable", "everything_saveable", "dots_saveable",
                                    "dots_with_no_batch_dims_saveable"};
  return kNames[static_cast<std::size_t>(policy)];
}

using Emit = std::function<std::vector<ir::ValueId>(ir::Builder&, ops::FunctionPtr,
                                                    std::vector<ir::ValueId>)>;

/// Calls `body` as it is, on the mesh of its arguments.
Outcome at_once(Body& body, const std::vector<Array>& arguments, const Span& where) {
  const use_mesh scope(mesh_of(arguments, where));
  Called called = call_as_it_is(body, arguments, where);
  return {std::move(called.result), std::move(called.leaves)};
}

/// Traces `body` and emits one equation that has it as its only nested function.
Outcome emit_call(Body& body, const Span& where, const Emit& emit) {
  std::vector<Array> operands = leaves_of(body.walk_arguments(Walk::Want::leaves), where);
  const std::vector<Type> types = types_of(operands);
  if (runs_op_by_op()) return at_once(body, operands, where);
  std::shared_ptr<void> result;
  std::vector<Array> outputs = recorded(operands, where, [&] {
    Nested nested = trace_nested(body, types, where, {.inputs = looks_at(operands)});
    std::vector<Array> all = operands;
    all.insert(all.end(), nested.captured.begin(), nested.captured.end());
    result = nested.result;
    std::vector<ir::ValueId> ids = lift_all(all, where);
    return as_arrays(
        emit(builder_at(where), shared_function(std::move(nested.function)), std::move(ids)));
  });
  return {std::move(result), std::move(outputs)};
}

void check_cotangents(const Nested& backward, const std::vector<Type>& arguments,
                      const std::vector<std::string>& paths, const Span& where) {
  const bool is_same_count = backward.results.size() == arguments.size();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (is_same_count && backward.results[i] == arguments[i]) continue;
    throw UserError(
        {.what = "custom_vjp: backward does not return the cotangents of the arguments",
         .where = where,
         .found = is_same_count ? to_string(backward.results[i])
                                : fmt::format("{} arrays", backward.results.size()),
         .wanted =
             is_same_count
                 ? fmt::format("{}, the type of argument {}", to_string(arguments[i]), paths[i])
                 : fmt::format("{} arrays, one per leaf of the arguments", arguments.size()),
         .cure = "return one cotangent per argument, of the argument's type; zeros where no "
                 "gradient flows"});
  }
}

void check_forward(const Nested& primal, const Nested& forward, const Span& where) {
  for (std::size_t i = 0; i < primal.results.size(); ++i) {
    if (i < forward.results.size() && forward.results[i] == primal.results[i]) continue;
    throw UserError(
        {.what = "custom_vjp: forward does not return the result of the function",
         .where = where,
         .found = i < forward.results.size() ? to_string(forward.results[i]) : "fewer arrays",
         .wanted = to_string(primal.results[i]),
         .cure = "return std::pair(f(args...), residuals) from forward"});
  }
}

}  // namespace

Outcome remat(Body& body, RematPolicy policy, const std::source_location& location) {
  return emit_call(body, trace::call_span(location),
                   [&](ir::Builder& b, ops::FunctionPtr function, std::vector<ir::ValueId> ids) {
                     return ops::remat(b, name_of(policy), std::move(function), std::move(ids));
                   });
}

Outcome call(Body& body, const std::string& name, const std::source_location& location) {
  return emit_call(body, trace::call_span(location),
                   [&](ir::Builder& b, ops::FunctionPtr function, std::vector<ir::ValueId> ids) {
                     return ops::call(b, name, std::move(function), std::move(ids));
                   });
}

Outcome custom_vjp(Body& primal, Body& forward, BackwardMaker& backward,
                   const std::source_location& location) {
  const Span where = trace::call_span(location);
  Walk arguments = primal.walk_arguments(Walk::Want::paths);
  const std::vector<Array> leaves = leaves_of(arguments, where);
  const std::vector<Type> types = types_of(leaves);
  if (runs_op_by_op()) return at_once(primal, leaves, where);
  std::shared_ptr<void> result;
  std::vector<Array> outputs = recorded(leaves, where, [&] {
    Nested f = trace_nested(primal, types, where, {.inputs = looks_at(leaves)});
    Nested with_residuals = trace_nested(forward, types, where, {.inputs = looks_at(leaves)});
    check_forward(f, with_residuals, where);
    const std::size_t num_results = f.results.size();
    // The arguments of backward: residuals, then cotangents of the results.
    std::vector<Type> backward_types(
        with_residuals.results.begin() + static_cast<std::ptrdiff_t>(num_results),
        with_residuals.results.end());
    const std::size_t num_residuals = backward_types.size();
    backward_types.insert(backward_types.end(), f.results.begin(), f.results.end());
    const std::unique_ptr<Body> last = backward.make(with_residuals.result.get());
    Nested pulled = trace_nested(*last, backward_types, where);
    check_cotangents(pulled, types, arguments.paths(), where);
    const std::vector<Array> captured = all_captured({&f, &with_residuals, &pulled});
    take_captured(f, captured, types.size(), types.size());
    take_captured(with_residuals, captured, types.size(), types.size());
    take_captured(pulled, captured, backward_types.size(), num_residuals);
    std::vector<Array> operands = leaves;
    operands.insert(operands.end(), captured.begin(), captured.end());
    result = f.result;
    std::vector<ir::ValueId> ids = lift_all(operands, where);
    return as_arrays(
        ops::custom_vjp(builder_at(where),
                        {.primal = shared_function(std::move(f.function)),
                         .forward = shared_function(std::move(with_residuals.function)),
                         .backward = shared_function(std::move(pulled.function)),
                         .num_args = types.size()},
                        std::move(ids)));
  });
  return {std::move(result), std::move(outputs)};
}

}  // namespace tessera::detail
