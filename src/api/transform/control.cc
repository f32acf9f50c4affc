// Control flow: functions traced on their own and put into one equation.
#include "ops/control/control.h"

#include <fmt/format.h>

#include <tessera/control.h>
#include <tessera/error.h>
#include <tessera/ops.h>

#include "api/inspect/op_by_op.h"
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
void check_carry(const char* construct, const std::vector<Type>& found,
                 const std::vector<std::string>& paths, const std::vector<Type>& carry,
                 const Span& where) {
  const std::size_t num_found = std::min(carry.size(), found.size());
  for (std::size_t i = 0; i < carry.size(); ++i) {
    if (i < num_found && found[i] == carry[i]) continue;
    throw UserError(
        {.what = fmt::format("{}: the function changes the type of its carry", construct),
         .where = where,
         .found = i < num_found ? leaf_text(paths[i], found[i]) + " is returned"
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

/// The types of the first leaves.
std::vector<Type> first_types(const std::vector<Type>& types, std::size_t count) {
  return {types.begin(), types.begin() + static_cast<std::ptrdiff_t>(count)};
}

/// A scan and its arguments.
struct Scan {
  std::int64_t length;
  std::size_t num_carry;
  bool is_reverse;
  std::vector<Array> leaves;  // the carry, then what is scanned
  std::vector<Type> types;    // of the arguments of an iteration
  Span where;

  std::int64_t position(std::int64_t round) const {
    return is_reverse ? length - 1 - round : round;
  }
  std::vector<Array> carry() const {
    return {leaves.begin(), leaves.begin() + static_cast<std::ptrdiff_t>(num_carry)};
  }
};

/// Calls the function for each iteration.
Outcome scan_op_by_op(Body& body, const Scan& scan) {
  const use_mesh scope(mesh_of(scan.leaves, scan.where));
  std::vector<Array> carry = scan.carry();
  std::vector<std::vector<Array>> stacked;  // per result: a slice for each position
  Called called;
  for (std::int64_t round = 0; round < scan.length; ++round) {
    const std::int64_t at = scan.position(round);
    std::vector<Array> arguments = carry;
    for (std::size_t i = scan.num_carry; i < scan.leaves.size(); ++i) {
      arguments.push_back(scan.leaves[i][at]);
    }
    called = call_as_it_is(body, arguments, scan.where);
    check_carry("scan", types_of(called.leaves), called.paths,
                first_types(scan.types, scan.num_carry), scan.where);
    const auto middle = called.leaves.begin() + static_cast<std::ptrdiff_t>(scan.num_carry);
    carry.assign(called.leaves.begin(), middle);
    stacked.resize(called.leaves.size() - scan.num_carry);
    for (std::size_t i = 0; i < stacked.size(); ++i) {
      stacked[i].resize(static_cast<std::size_t>(scan.length));
      stacked[i][static_cast<std::size_t>(at)] = middle[static_cast<std::ptrdiff_t>(i)];
    }
  }
  for (const std::vector<Array>& slices : stacked) carry.push_back(stack(slices));
  return {std::move(called.result), std::move(carry)};
}

/// Traces the function of a scan. While jit is disabled, once for each iteration as long as its
/// values are known, so that they can be seen; what is traced does not depend on them.
Nested trace_iterations(Body& body, const Scan& scan) {
  std::vector<Look> carry = looks_at(scan.carry());
  Nested nested;
  for (std::int64_t round = 0; round < std::max<std::int64_t>(1, scan.length); ++round) {
    std::vector<Look> inputs = carry;
    for (std::size_t i = scan.num_carry; i < scan.leaves.size(); ++i) {
      inputs.push_back(slice_of(scan.leaves[i], scan.position(round)));
    }
    if (!is_jit_disabled()) {
      return trace_nested(body, scan.types, scan.where, {.inputs = std::move(inputs)});
    }
    std::vector<std::optional<Seen>> results;
    nested = trace_nested(body, scan.types, scan.where,
                          {.inputs = std::move(inputs), .results = &results});
    carry.clear();
    for (std::size_t i = 0; i < std::min(scan.num_carry, results.size()); ++i) {
      if (!results[i]) return nested;
      carry.emplace_back([value = results[i]] { return value; });
    }
    if (carry.size() < scan.num_carry) return nested;
  }
  return nested;
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
  const Scan all{.length = length,
                 .num_carry = num_carry,
                 .is_reverse = options.reverse,
                 .leaves = leaves,
                 .types = types,
                 .where = where};
  if (runs_op_by_op() && length > 0) return scan_op_by_op(body, all);
  std::shared_ptr<void> result;
  std::vector<Array> outputs = recorded(leaves, where, [&] {
    Nested nested = trace_iterations(body, all);
    check_carry("scan", nested.results, nested.result_paths, first_types(types, num_carry), where);
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

namespace {

void check_condition(const Type& type, const Span& where) {
  if (type == Type{DType::boolean, {}}) return;
  throw UserError({.what = "while_loop: the condition is not a bool scalar",
                   .where = where,
                   .found = to_string(type),
                   .wanted = "bool[]",
                   .cure = "compare scalars, for example max(x) < 10"});
}

/// Calls both functions for each iteration; nullopt if there is none, which gives no result.
std::optional<Outcome> while_op_by_op(Body& condition, Body& body, std::vector<Array> carry,
                                      const Span& where) {
  const use_mesh scope(mesh_of(carry, where));
  const std::vector<Type> types = types_of(carry);
  const auto holds = [&] {
    const Array value = call_as_it_is(condition, carry, where).leaves[0];
    check_condition(value.type(), where);
    return value.item<bool>();
  };
  Called called;
  while (holds()) {
    called = call_as_it_is(body, carry, where);
    check_carry("while_loop", types_of(called.leaves), called.paths, types, where);
    carry = called.leaves;
  }
  if (called.result == nullptr) return std::nullopt;
  return Outcome{std::move(called.result), std::move(carry)};
}

}  // namespace

Outcome while_loop(Body& condition, Body& body, const std::source_location& location) {
  const Span where = trace::call_span(location);
  const std::vector<Array> leaves = leaves_of(body.walk_arguments(Walk::Want::leaves), where);
  const std::vector<Type> types = types_of(leaves);
  if (runs_op_by_op()) {
    std::optional<Outcome> outcome = while_op_by_op(condition, body, leaves, where);
    if (outcome) return *std::move(outcome);
  }
  std::shared_ptr<void> result;
  std::vector<Array> outputs = recorded(leaves, where, [&] {
    Nested test = trace_nested(condition, types, where, {.inputs = looks_at(leaves)});
    check_condition(test.results[0], where);
    Nested step = trace_nested(body, types, where, {.inputs = looks_at(leaves)});
    check_carry("while_loop", step.results, step.result_paths, types, where);
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

/// The branch that a concrete index selects.
std::size_t selected(const Array& index, std::size_t num_branches) {
  const std::int64_t last = static_cast<std::int64_t>(num_branches) - 1;
  return static_cast<std::size_t>(std::clamp<std::int64_t>(index.item<std::int64_t>(), 0, last));
}

/// The arguments of a branch, which has none that could be seen if another one is selected.
std::vector<Look> looks_of_branch(const Array& index, std::size_t branch, std::size_t num_branches,
                                  const std::vector<Array>& leaves) {
  std::vector<Look> looks;
  for (const Array& leaf : leaves) {
    looks.emplace_back([=]() -> std::optional<Seen> {
      const std::optional<Seen> chosen = seen(index);
      // Within vmap each element may have a branch of its own.
      const bool is_other =
          chosen && chosen->value.rank() == 0 && selected(chosen->value, num_branches) != branch;
      return chosen && !is_other ? seen(leaf) : std::nullopt;
    });
  }
  return looks;
}

}  // namespace

Outcome switch_case(const Operand& index, const std::vector<Body*>& branches) {
  const Span where = trace::call_span(index.where);
  const Array chosen = index.is_number() ? Scalar(index) : index.array;
  const Type type = node_of(chosen, where)->type;
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
  arrays.push_back(chosen);
  if (runs_op_by_op()) {
    const use_mesh scope(mesh_of(arrays, where));
    Called called = call_as_it_is(*branches[selected(chosen, branches.size())], leaves, where);
    return {std::move(called.result), std::move(called.leaves)};
  }
  std::vector<Array> outputs = recorded(arrays, where, [&] {
    std::vector<Nested> traced;
    std::vector<const Nested*> pointers;
    for (Body* branch : branches) {
      traced.push_back(trace_nested(
          *branch, types, where,
          {.inputs = looks_of_branch(chosen, traced.size(), branches.size(), leaves)}));
    }
    for (const Nested& nested : traced) pointers.push_back(&nested);
    check_branches(traced, where);
    const std::vector<Array> captured = all_captured(pointers);
    for (Nested& nested : traced) take_captured(nested, captured, types.size(), types.size());
    std::vector<Array> operands = {chosen};
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
