// Control flow: functions traced on their own and put into one equation.
#include "ops/control/control.h"

#include <fmt/format.h>

#include <tessera/control.h>
#include <tessera/error.h>

#include "api/transform/nested.h"
#include "ops/emit.h"

namespace tessera::detail {

namespace {

/// `leaf 1/kernel: f32[3]`; the type alone for a tree that is one array.
std::string leaf_text(const std::string& path, const Type& type) {
  return path.empty() ? to_string(type) : fmt::format("leaf {}: {}", path, to_string(type));
}

/// The types of slices along dimension 0, whose sizes must agree with `length` if that is known.
std::vector<Type> slice_types(const std::vector<Array>& leaves, std::size_t num_carry,
                              const std::vector<std::string>& paths, std::int64_t& length,
                              const Span& where) {
  std::vector<Type> types;
  std::string first;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    Type type = leaves[i].type();
    if (i >= num_carry) {
      if (type.rank() == 0) {
        throw UserError({.what = "scan: a scanned array has no dimension to scan",
                         .where = where,
                         .found = leaf_text(paths[i], type),
                         .wanted = "arrays with a leading dimension, one slice per iteration",
                         .cure = "capture the array, or put it into the carry"});
      }
      if (length >= 0 && type.shape[0] != length) {
        throw UserError({.what = "scan: scanned arrays have different lengths",
                         .where = where,
                         .found = leaf_text(paths[i], type),
                         .wanted = fmt::format(
                             "{} slices, as {}", length,
                             first.empty() ? "options.length says" : "leaf " + first + " has"),
                         .cure = "slice the longer one, or capture it instead"});
      }
      length = type.shape[0];
      if (first.empty()) first = paths[i];
      type.shape.erase(type.shape.begin());
    }
    types.push_back(std::move(type));
  }
  return types;
}

/// Throws UserError unless the carry that is returned has the types of the one that is passed in.
void check_carry(const char* construct, const Nested& nested, const std::vector<Type>& carry,
                 const Span& where) {
  const std::size_t num_found = std::min(carry.size(), nested.results.size());
  for (std::size_t i = 0; i < carry.size(); ++i) {
    if (i < num_found && nested.results[i] == carry[i]) continue;
    throw UserError(
        {.what = fmt::format("{}: the function changes the type of its carry", construct),
         .where = where,
         .found = i < num_found
                      ? leaf_text(nested.result_paths[i], nested.results[i]) + " is returned"

                      : fmt::format("a carry of {} leaves is returned", num_found),
         .wanted = i < num_found ? to_string(carry[i]) + ", the type of the initial carry"
                                 : fmt::format("{} leaves, as in the initial carry", carry.size()),
         .cure = "convert it with astype or reshape it at the end of the function, or give the "
                 "initial carry the type that the function returns"});
  }
}

void append(std::vector<Array>& arrays, const std::vector<Array>& more) {
  arrays.insert(arrays.end(), more.begin(), more.end());
}

}  // namespace

Outcome scan(Body& body, std::size_t num_carry, const ScanOptions& options,
             const std::source_location& location) {
  const Span where = trace::call_span(location);
  Walk arguments = body.walk_arguments(Walk::Want::paths);
  const std::vector<Array> leaves = leaves_of(arguments, where);
  std::int64_t length = options.length;
  const std::vector<Type> types = slice_types(leaves, num_carry, arguments.paths(), length, where);
  if (length < 0) {
    throw UserError({.what = "scan: the number of iterations is unknown",
                     .where = where,
                     .found = "no scanned array and no length",
                     .wanted = "an array to scan, or options.length",
                     .cure = "write scan(f, init, std::tuple<>(), {.length = 10})"});
  }
  std::shared_ptr<void> result;
  std::vector<Array> outputs = recorded(leaves, where, [&] {
    Nested nested = trace_nested(body, types, where);
    check_carry("scan", nested,
                {types.begin(), types.begin() + static_cast<std::ptrdiff_t>(num_carry)}, where);
    std::vector<Array> operands = nested.captured;
    take_captured(nested, operands, types.size(), 0);
    const ops::ScanParts parts{.length = length,
                               .num_consts = operands.size(),
                               .num_carry = num_carry,
                               .is_reverse = options.reverse};
    append(operands, leaves);
    result = nested.result;
    const std::vector<ir::ValueId> ids = lift_all(operands, where);
    return as_arrays(
        ops::scan(builder_at(where), parts, shared_function(std::move(nested.function)), ids));
  });
  return {std::move(result), std::move(outputs)};
}

Outcome while_loop(Body& condition, Body& body, const std::source_location& location) {
  const Span where = trace::call_span(location);
  const std::vector<Array> leaves = leaves_of(body.walk_arguments(Walk::Want::leaves), where);
  const std::vector<Type> types = types_of(leaves);
  std::shared_ptr<void> result;
  std::vector<Array> outputs = recorded(leaves, where, [&] {
    Nested test = trace_nested(condition, types, where);
    if (test.results[0] != Type{DType::boolean, {}}) {
      throw UserError({.what = "while_loop: the condition is not a bool scalar",
                       .where = where,
                       .found = to_string(test.results[0]),
                       .wanted = "bool[]",
                       .cure = "compare scalars, for example max(x) < 10"});
    }
    Nested step = trace_nested(body, types, where);
    check_carry("while_loop", step, types, where);
    std::vector<Array> operands = all_captured({&test, &step});
    take_captured(test, operands, types.size(), 0);
    take_captured(step, operands, types.size(), 0);
    const std::size_t num_consts = operands.size();
    append(operands, leaves);
    result = step.result;
    const std::vector<ir::ValueId> ids = lift_all(operands, where);
    return as_arrays(ops::while_loop(builder_at(where), num_consts,
                                     shared_function(std::move(test.function)),
                                     shared_function(std::move(step.function)), ids));
  });
  return {std::move(result), std::move(outputs)};
}

namespace {

void check_branches(const std::vector<Nested>& branches, const Span& where) {
  for (std::size_t i = 1; i < branches.size(); ++i) {
    const Nested& branch = branches[i];
    const std::size_t count = std::min(branch.results.size(), branches[0].results.size());
    std::size_t leaf = 0;
    while (leaf < count && branch.results[leaf] == branches[0].results[leaf]) ++leaf;
    if (leaf == count && branch.results.size() == branches[0].results.size()) continue;
    const auto text = [&](const Nested& nested) {
      return leaf < count ? leaf_text(nested.result_paths[leaf], nested.results[leaf])
                          : fmt::format("{} arrays", nested.results.size());
    };
    throw UserError(
        {.what = fmt::format("cond: branches 0 and {} return different types", i),
         .where = where,
         .found = fmt::format("branch {} returns {}", i, text(branch)),
         .wanted = fmt::format("the types that branch 0 returns: {}", text(branches[0])),
         .cure = "convert with astype or broadcast_to in one of the branches"});
  }
}

}  // namespace

Outcome switch_case(const Operand& index, const std::vector<Body*>& branches) {
  const Span where = trace::call_span(index.where);
  const Type type = node_of(index.array, where)->type;
  if (type.rank() != 0 || (type.dtype != DType::i32 && type.dtype != DType::boolean)) {
    throw UserError({.what = "cond: the value that selects the branch is not a bool or i32 scalar",
                     .where = where,
                     .found = to_string(type),
                     .wanted = "bool[] for cond, i32[] or bool[] for switch_case",
                     .cure = "reduce it with any() or all(), or use where(pred, x, y) to choose "
                             "element by element"});
  }
  std::vector<Array> leaves = leaves_of(branches[0]->walk_arguments(Walk::Want::leaves), where);
  const std::vector<Type> types = types_of(leaves);
  std::shared_ptr<void> result;
  std::vector<Array> arrays = leaves;
  arrays.push_back(index.array);
  std::vector<Array> outputs = recorded(arrays, where, [&] {
    std::vector<Nested> traced;
    std::vector<const Nested*> pointers;
    for (Body* branch : branches) traced.push_back(trace_nested(*branch, types, where));
    for (const Nested& nested : traced) pointers.push_back(&nested);
    check_branches(traced, where);
    const std::vector<Array> captured = all_captured(pointers);
    for (Nested& nested : traced) take_captured(nested, captured, types.size(), types.size());
    std::vector<Array> operands = {index.array};
    append(operands, leaves);
    append(operands, captured);
    result = traced[0].result;
    std::vector<ops::FunctionPtr> functions;
    for (Nested& nested : traced) {
      functions.push_back(shared_function(std::move(nested.function)));
    }
    std::vector<ir::ValueId> ids = lift_all(operands, where);
    ir::Builder& builder = builder_at(where);
    ids[0] = ops::convert(builder, ids[0], DType::i32);
    return as_arrays(ops::cond(builder, std::move(functions), std::move(ids)));
  });
  return {std::move(result), std::move(outputs)};
}

}  // namespace tessera::detail
