// Derivatives of traced functions, and abstract evaluation.
#include <fmt/format.h>

#include <tessera/error.h>
#include <tessera/functions.h>
#include <tessera/grad.h>
#include <tessera/transform.h>

#include "api/apply.h"
#include "api/inspect/watch.h"
#include "api/program.h"
#include "api/transform/pipeline_scope.h"
#include "differentiate/differentiate.h"
#include "ops/emit.h"

namespace tessera::detail {

namespace {

bool is_trained(const Walk::Leaf& leaf) {
  return leaf.info() == nullptr || leaf.info()->is_trained;
}

void check_wrt(Walk& wrt, const Span& where) {
  const std::vector<std::string>& paths = wrt.paths();
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const Array& array = *wrt.leaves()[i].array;
    node_of(array, where);
    if (is_float(array.dtype()) || !is_trained(wrt.leaves()[i])) continue;
    throw UserError({.what = "grad: a leaf to differentiate with respect to is not a float array",
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

/// Differentiates within the innermost trace.
Gradients differentiate_traced(Walk& wrt, Body& body, const Span& where) {
  const std::shared_ptr<trace::Trace> parent = trace::innermost();
  auto trace = std::make_shared<trace::Trace>(parent->function());
  std::vector<Array> tracers(wrt.leaves().size());
  std::vector<std::size_t> numbers;
  std::vector<ir::ValueId> arguments;
  std::vector<Array> outer;
  // Inputs to differentiate with respect to come first.
  for (const bool trained : {true, false}) {
    for (std::size_t i = 0; i < tracers.size(); ++i) {
      const Walk::Leaf& leaf = wrt.leaves()[i];
      if (is_trained(leaf) != trained) continue;
      if (trained) numbers.push_back(numbers.size());
      arguments.push_back(lift(*parent, *leaf.array, where));
      outer.push_back(*leaf.array);
      tracers[i] = make_traced(trace, trace->add_input(leaf.array->type()));
      tracers[i].node()->info = leaf.info();
    }
  }
  Gradients gradients;
  std::vector<ir::ValueId> outputs;
  {
    const trace::Tracing tracing(trace);
    const Watching watching(*trace, looks_at(outer));
    gradients.result = body.call(tracers);
    const Walk result = body.walk_result(gradients.result.get(), Walk::Want::leaves);
    for (std::size_t i = 0; i < result.leaves().size(); ++i) {
      if (!result.leaves()[i].array->is_empty()) continue;
      fail_empty(i == 0 ? "the loss" : fmt::format("leaf {} of the result", i), where);
    }
    check_loss(result, where);
    for (const Walk::Leaf& leaf : result.leaves()) {
      outputs.push_back(lift(*trace, *leaf.array, where));
    }
  }
  const std::size_t num_values = outputs.size();
  for (const std::shared_ptr<const void>& captured : trace->captured()) {
    const Array array(
        std::const_pointer_cast<ArrayNode>(std::static_pointer_cast<const ArrayNode>(captured)));
    arguments.push_back(lift(*parent, array, where));
  }
  const ir::Function derivative = differentiate::value_and_grad(
      cut_derivative(trace->finish(std::move(outputs)), arguments, numbers.size(), where), numbers);
  const std::vector<ir::ValueId> results = parent->builder().inline_function(derivative, arguments);
  for (std::size_t i = 0; i < num_values; ++i) {
    gradients.values.push_back(make_traced(parent, results[i]));
  }
  std::size_t next = num_values;
  for (const Walk::Leaf& leaf : wrt.leaves()) {
    const ir::ValueId id =
        is_trained(leaf) ? results[next++] : ops::full(parent->builder(), 0.0, leaf.array->type());
    gradients.gradients.push_back(make_traced(parent, id));
  }
  return gradients;
}

}  // namespace

Gradients differentiate(Body& body, const std::source_location& where) {
  const Span span(where);
  Walk wrt = body.walk_arguments(Walk::Want::paths);
  check_wrt(wrt, span);
  if (trace::innermost() != nullptr) return differentiate_traced(wrt, body, span);
  MeshChoice choice(span);
  for (const Walk::Leaf& leaf : wrt.leaves()) {
    const ArrayNode& node = *leaf.array->node();
    if (node.is_concrete()) choice.add(node.placement->mesh, describe(*leaf.array));
  }
  const use_mesh scope(choice.mesh());
  Gradients gradients;
  std::vector<Array> all = run_traced(choice.mesh(), [&] {
    gradients = differentiate_traced(wrt, body, span);
    std::vector<Array> both = gradients.values;
    both.insert(both.end(), gradients.gradients.begin(), gradients.gradients.end());
    return both;
  });
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(gradients.values.size());
  gradients.values.assign(all.begin(), middle);
  gradients.gradients.assign(middle, all.end());
  return gradients;
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
  const trace::Tracing tracing(trace);
  std::shared_ptr<void> result = body.call(tracers);
  std::vector<Array> abstract;
  const Walk leaves = body.walk_result(result.get(), Walk::Want::leaves);
  for (const Walk::Leaf& leaf : leaves.leaves()) {
    abstract.push_back(make_abstract(node_of(*leaf.array, span)->type));
  }
  return {std::move(result), std::move(abstract)};
}

Array inner_product(const Walk& a, const Walk& b, const char* what,
                    const std::source_location& where) {
  const CallScope call(where);
  const bool is_vjp = what == std::string_view("vjp");
  const char* const given = is_vjp ? "cotangent" : "tangent";
  const char* const of = is_vjp ? "result" : "argument";
  const auto fail = [&](const std::string& found, const std::string& wanted) {
    throw UserError(
        {.what = fmt::format("{}: the {} and the {} have different structures", what, given, of),
         .where = Span(where),
         .found = found,
         .wanted = wanted,
         .cure = "pass one array per leaf, with the type of the leaf"});
  };
  const auto count = [](const Walk& w) { return fmt::format("leaves: {}", w.leaves().size()); };
  if (a.leaves().size() != b.leaves().size()) fail(count(b), count(a));
  Array total = zeros({});
  for (std::size_t i = 0; i < a.leaves().size(); ++i) {
    const Array& x = *a.leaves()[i].array;
    const Array& y = *b.leaves()[i].array;
    if (x.type() != y.type()) fail(to_string(y.type()), to_string(x.type()));
    if (is_float(x.dtype())) total = total + astype(sum(x * y), DType::f32);
  }
  return total;
}

std::vector<Array> zeros_of(const Walk& tree) {
  std::vector<Array> all;
  for (const Walk::Leaf& leaf : tree.leaves()) {
    all.push_back(zeros(leaf.array->shape(), leaf.array->dtype()));
  }
  return all;
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
