// Derivatives of traced functions, and abstract evaluation.
#include <fmt/format.h>
#include <functional>

#include <tessera/derivatives.h>
#include <tessera/error.h>
#include <tessera/functions.h>
#include <tessera/transform.h>

#include "api/apply.h"
#include "api/inspect/watch.h"
#include "api/program.h"
#include "api/transform/pipeline_scope.h"
#include "differentiate/differentiate.h"
#include "ops/emit.h"

namespace tessera::detail {

/// The part of a derivative that is linear in the tangents.
struct LinearMap {
  ir::Function function;  // residuals, then tangents -> tangents of the results
  std::vector<Array> residuals;
  std::vector<Type> types;    // of all leaves of the arguments
  std::vector<bool> is_read;  // per leaf: whether the function takes its tangent
};

namespace {

bool is_trained(const Walk::Leaf& leaf) {
  return leaf.info() == nullptr || leaf.info()->is_trained;
}

/// Per leaf: whether it is trained.
std::vector<bool> trained_leaves(const Walk& wrt) {
  std::vector<bool> trained;
  for (const Walk::Leaf& leaf : wrt.leaves()) trained.push_back(is_trained(leaf));
  return trained;
}

/// The tangents of the trained leaves.
std::vector<Array> tangents_of(const std::vector<bool>& trained, const Walk& tangents) {
  std::vector<Array> arrays;
  for (std::size_t i = 0; i < trained.size(); ++i) {
    if (trained[i]) arrays.push_back(*tangents.leaves()[i].array);
  }
  return arrays;
}

void check_wrt(Walk& wrt, const char* what, const Span& where) {
  const std::vector<std::string>& paths = wrt.paths();
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const Array& array = *wrt.leaves()[i].array;
    node_of(array, where);
    if (is_float(array.dtype()) || !is_trained(wrt.leaves()[i])) continue;
    throw UserError({.what = fmt::format(
                         "{}: a leaf to differentiate with respect to is not a float array", what),
                     .where = where,
                     .found = fmt::format("leaf {}: {}", paths[i], to_string(array.type())),
                     .wanted = "bf16, f32 or f64",
                     .cure = "pass it as another argument, capture it, or make it an nn::Buffer"});
  }
}

void check_loss(const Walk& result, const Span& where) {
  const bool is_there = !result.leaves().empty();
  if (is_there) {
    const Type& type = result.leaves()[0].array->type();
    if (type.rank() == 0 && is_float(type.dtype)) return;
  }
  throw UserError({.what = "grad: the loss is not a float scalar",
                   .where = where,
                   .found = is_there ? to_string(result.leaves()[0].array->type()) : "no array",
                   .wanted = "f32[]",
                   .cure = "reduce the loss with mean() or sum() before returning it; return "
                           "further results after it: std::tuple(loss, logits)"});
}

/// A function that was traced to be differentiated within the innermost trace.
struct Traced {
  std::shared_ptr<trace::Trace> parent;
  ir::Function function;
  /// Of the function, in the parent. Those to differentiate with respect to come first.
  std::vector<ir::ValueId> arguments;
  std::vector<std::size_t> numbers;  // of the arguments to differentiate with respect to
  std::shared_ptr<void> result;      // what the body returned
};

/// `has_loss`: leaf 0 of the result must be a float scalar.
Traced trace_body(const Walk& wrt, Body& body, bool has_loss, const Span& where) {
  Traced traced{.parent = trace::innermost(),
                .function = {},
                .arguments = {},
                .numbers = {},
                .result = nullptr};
  auto trace = std::make_shared<trace::Trace>(traced.parent->function());
  std::vector<Array> tracers(wrt.leaves().size());
  std::vector<Array> outer;
  for (const bool trained : {true, false}) {
    for (std::size_t i = 0; i < tracers.size(); ++i) {
      const Walk::Leaf& leaf = wrt.leaves()[i];
      if (is_trained(leaf) != trained) continue;
      if (trained) traced.numbers.push_back(traced.numbers.size());
      traced.arguments.push_back(lift(*traced.parent, *leaf.array, where));
      outer.push_back(*leaf.array);
      tracers[i] = make_traced(trace, trace->add_input(leaf.array->type()));
      tracers[i].node()->info = leaf.info();
    }
  }
  std::vector<ir::ValueId> outputs;
  {
    const trace::Tracing tracing(trace, where);
    const Watching watching(*trace, looks_at(outer));
    traced.result = body.call(tracers);
    const Walk result = body.walk_result(traced.result.get(), Walk::Want::leaves);
    for (std::size_t i = 0; i < result.leaves().size(); ++i) {
      if (!result.leaves()[i].array->is_empty()) continue;
      fail_empty(i == 0 && has_loss ? "the loss" : fmt::format("leaf {} of the result", i), where);
    }
    if (has_loss) check_loss(result, where);
    for (const Walk::Leaf& leaf : result.leaves()) {
      outputs.push_back(lift(*trace, *leaf.array, where));
    }
  }
  for (const std::shared_ptr<const void>& captured : trace->captured()) {
    const Array array(
        std::const_pointer_cast<ArrayNode>(std::static_pointer_cast<const ArrayNode>(captured)));
    traced.arguments.push_back(lift(*traced.parent, array, where));
  }
  traced.function = trace->finish(std::move(outputs));
  return traced;
}

/// The arrays that a function computes in a trace.
std::vector<Array> inlined(const std::shared_ptr<trace::Trace>& trace, const ir::Function& function,
                           const std::vector<ir::ValueId>& arguments) {
  std::vector<Array> arrays;
  for (const ir::ValueId id : trace->builder().inline_function(function, arguments)) {
    arrays.push_back(make_traced(trace, id));
  }
  return arrays;
}

/// Keeps the first `num_values` values and makes the others derivatives.
void split(Derivative& derivative, std::size_t num_values) {
  const auto middle = derivative.values.begin() + static_cast<std::ptrdiff_t>(num_values);
  derivative.derivatives.assign(middle, derivative.values.end());
  derivative.values.erase(middle, derivative.values.end());
}

/// Differentiates within the innermost trace.
Derivative differentiate_traced(const Walk& wrt, Body& body, const Span& where) {
  Traced traced = trace_body(wrt, body, true, where);
  const std::size_t num_values = traced.function.outputs.size();
  const ir::Function cut =
      cut_derivative(std::move(traced.function), traced.arguments, traced.numbers.size(), where);
  Derivative derivative{
      .result = traced.result,
      .values = inlined(traced.parent, differentiate::value_and_grad(cut, traced.numbers),
                        traced.arguments),
      .derivatives = {}};
  std::size_t next = num_values;
  for (const Walk::Leaf& leaf : wrt.leaves()) {
    derivative.derivatives.push_back(
        is_trained(leaf) ? derivative.values[next++]
                         : make_traced(traced.parent, ops::full(traced.parent->builder(), 0.0,
                                                                leaf.array->type())));
  }
  derivative.values.resize(num_values);
  return derivative;
}

Derivative push_forward_traced(const Walk& wrt, const Walk& tangents, Body& body,
                               const Span& where) {
  Traced traced = trace_body(wrt, body, false, where);
  const std::size_t num_values = traced.function.outputs.size();
  for (const Array& tangent : tangents_of(trained_leaves(wrt), tangents)) {
    traced.arguments.push_back(lift(*traced.parent, tangent, where));
  }
  Derivative derivative{
      .result = traced.result,
      .values = inlined(traced.parent, differentiate::jvp(traced.function, traced.numbers),
                        traced.arguments),
      .derivatives = {}};
  split(derivative, num_values);
  return derivative;
}

/// Like push_forward_traced, with residuals instead of tangents.
Derivative linearize_traced(const Walk& wrt, Body& body, LinearMap& map, const Span& where) {
  Traced traced = trace_body(wrt, body, false, where);
  const std::size_t num_values = traced.function.outputs.size();
  differentiate::Linearized linear = differentiate::linearize(traced.function, traced.numbers);
  Derivative derivative{.result = traced.result,
                        .values = inlined(traced.parent, linear.forward, traced.arguments)};
  map.function = std::move(linear.tangents);
  split(derivative, num_values);
  return derivative;
}

/// What `run` traces: within the innermost trace, or else compiled and run at once on the mesh of
/// `arrays`.
Derivative run_or_trace(const std::vector<Array>& arrays, const Span& where,
                        const std::function<Derivative()>& run) {
  if (trace::innermost() != nullptr) return run();
  MeshChoice choice(where);
  for (const Array& array : arrays) {
    const ArrayNode& node = *array.node();
    if (node.is_concrete()) choice.add(node.placement->mesh, describe(array));
  }
  const use_mesh scope(choice.mesh());
  Derivative derivative;
  std::size_t num_values = 0;
  std::vector<Array> all = run_traced(choice.mesh(), [&] {
    derivative = run();
    num_values = derivative.values.size();
    std::vector<Array> both = derivative.values;
    both.insert(both.end(), derivative.derivatives.begin(), derivative.derivatives.end());
    return both;
  });
  derivative.values = std::move(all);
  split(derivative, num_values);
  return derivative;
}

std::vector<Type> types_of(const Walk& walk) {
  std::vector<Type> types;
  for (const Walk::Leaf& leaf : walk.leaves()) types.push_back(leaf.array->type());
  return types;
}

/// Throws UserError if `given` has not leaves of the types `wanted`.
void check_types(const std::vector<Type>& wanted, const Walk& given, const char* what,
                 const char* given_name, const char* of_name, const Span& where) {
  const auto fail = [&](const std::string& found, const std::string& needed) {
    throw UserError({.what = fmt::format("{}: the {} and the {} have different structures", what,
                                         given_name, of_name),
                     .where = where,
                     .found = found,
                     .wanted = needed,
                     .cure = "pass one array per leaf, with the type of the leaf"});
  };
  const auto leaves = [](std::size_t size) { return fmt::format("leaves: {}", size); };
  const std::size_t num_given = given.leaves().size();
  if (num_given != wanted.size()) fail(leaves(num_given), leaves(wanted.size()));
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const Type& found = node_of(*given.leaves()[i].array, where)->type;
    if (found != wanted[i]) fail(to_string(found), to_string(wanted[i]));
  }
}

}  // namespace

Derivative differentiate(Body& body, const std::source_location& where) {
  const Span span(where);
  Walk wrt = body.walk_arguments(Walk::Want::paths);
  check_wrt(wrt, "grad", span);
  return run_or_trace(arrays_of(wrt), span, [&] { return differentiate_traced(wrt, body, span); });
}

Derivative push_forward(Body& body, const Walk& tangents, const std::source_location& where) {
  const Span span(where);
  Walk wrt = body.walk_arguments(Walk::Want::paths);
  check_wrt(wrt, "jvp", span);
  check_types(types_of(wrt), tangents, "jvp", "tangent", "argument", span);
  std::vector<Array> arrays = arrays_of(wrt);
  for (const Walk::Leaf& leaf : tangents.leaves()) arrays.push_back(*leaf.array);
  return run_or_trace(arrays, span, [&] { return push_forward_traced(wrt, tangents, body, span); });
}

Derivative linearize_body(Body& body, const std::source_location& where) {
  const Span span(where);
  Walk wrt = body.walk_arguments(Walk::Want::paths);
  check_wrt(wrt, "linearize", span);
  auto map = std::make_shared<LinearMap>();
  map->types = types_of(wrt);
  map->is_read = trained_leaves(wrt);
  Derivative derivative =
      run_or_trace(arrays_of(wrt), span, [&] { return linearize_traced(wrt, body, *map, span); });
  map->residuals = std::move(derivative.derivatives);
  derivative.map = std::move(map);
  return derivative;
}

std::vector<Array> push_forward(const LinearMap& map, const Walk& tangents,
                                const std::source_location& where) {
  const Span span(where);
  check_types(map.types, tangents, "linearize", "tangent", "argument", span);
  std::vector<Array> arrays = map.residuals;
  for (const Array& tangent : tangents_of(map.is_read, tangents)) arrays.push_back(tangent);
  const auto run = [&] {
    const std::shared_ptr<trace::Trace> parent = trace::innermost();
    std::vector<ir::ValueId> arguments;
    for (const Array& array : arrays) arguments.push_back(lift(*parent, array, span));
    Derivative derivative;
    derivative.values = inlined(parent, map.function, arguments);
    return derivative;
  };
  return run_or_trace(arrays, span, run).values;
}

Outcome evaluate_abstractly(Body& body, const std::source_location& where) {
  const Span span(where);
  const Walk arguments = body.walk_arguments(Walk::Want::leaves);
  const Settings settings = current_settings();
  auto trace = std::make_shared<trace::Trace>(current_mesh(), settings.grains, settings.numerics);
  std::vector<Array> tracers;
  for (const Walk::Leaf& leaf : arguments.leaves()) {
    tracers.push_back(make_traced(trace, trace->add_input(node_of(*leaf.array, span)->type)));
    tracers.back().node()->info = leaf.info();
  }
  const trace::Tracing tracing(trace, span);
  std::shared_ptr<void> result = body.call(tracers);
  std::vector<Array> abstract;
  const Walk leaves = body.walk_result(result.get(), Walk::Want::leaves);
  for (const Walk::Leaf& leaf : leaves.leaves()) {
    abstract.push_back(make_abstract(node_of(*leaf.array, span)->type));
  }
  return {std::move(result), std::move(abstract)};
}

Array inner_product(const Walk& result, const Walk& cotangent, const std::source_location& where) {
  const CallScope call(where);
  check_types(types_of(result), cotangent, "vjp", "cotangent", "result", Span(where));
  Array total = zeros({});
  for (std::size_t i = 0; i < result.leaves().size(); ++i) {
    const Array& x = *result.leaves()[i].array;
    if (!is_float(x.dtype())) continue;
    total = total + astype(sum(x * *cotangent.leaves()[i].array), DType::f32);
  }
  return total;
}

Array map_basis(const Type& type, const Function<Array, const Array&>& f,
                const std::source_location& where) {
  const CallScope call(where);
  const std::int64_t size = num_elements(type.shape);
  Shape shape = type.shape;
  shape.insert(shape.begin(), size);
  const Array basis = reshape(eye(size, size, 0, type.dtype), shape);
  return vmap([&](const Array& x) { return f(x); }, {}, where)(basis);
}

Array as_jacobian(const Array& table, const Type& rows, const Type& columns, bool is_transposed,
                  const std::source_location& where) {
  const CallScope call(where);
  Shape shape = rows.shape;
  shape.insert(shape.end(), columns.shape.begin(), columns.shape.end());
  if (!is_transposed) return reshape(table, shape);
  const std::int64_t size = num_elements(columns.shape);
  return reshape(transpose(reshape(table, {size, num_elements(rows.shape)})), shape);
}

}  // namespace tessera::detail
