// Control flow that stays in the compiled program: scan, while_loop, fori_loop, cond, switch_case,
// and treduce, the loop over microbatches that a pipeline runs.
//
//   auto [last, sums] =
//       scan([&](Array sum, Array x) { sum = sum + x; return std::pair(sum, sum); },
//            zeros({}), xs);
//   Array n = while_loop([](Array i) { return i < 10; }, [](Array i) { return i + 1; }, i0);
//   Array y = cond(pred, [](Array x) { return x; }, [](Array x) { return -x; }, x);
//   auto [loss, grads] = treduce(loss_and_grads, microbatches, Interleaved1F1B{4});
//
// Carries and results are trees. Functions are traced once and may capture arrays. Outside of jit,
// the whole construct is compiled and run immediately. All constructs can be differentiated, but
// while_loop only in forward mode (jvp). With pure_callback and io_callback, a running compiled
// program calls functions of the host program and uses their results.
#pragma once

#include <concepts>
#include <variant>

#include <tessera/jit.h>
#include <tessera/schedule.h>

namespace TESSERA_EXPORT tessera {

/// Options of scan.
struct ScanOptions {
  bool reverse = false;      // from the last slice to the first; results keep their positions
  std::int64_t length = -1;  // the number of iterations; required if no array is scanned
};

namespace detail {

/// Leaves 0..num_carry of the body's arguments and result are the carry.
Outcome scan(Body& body, std::size_t num_carry, const ScanOptions& options,
             const std::source_location& where);
/// Joins two lists of leaves into one.
using JoinLeaves =
    Function<std::vector<Array>, const std::vector<Array>&, const std::vector<Array>&>;
std::vector<Array> associative_scan(const JoinLeaves& join, const std::vector<Array>& leaves,
                                    std::int64_t axis, bool reverse,
                                    const std::source_location& where);
Outcome while_loop(Body& condition, Body& body, const std::source_location& where);
/// `index`: an i32 or bool scalar. All branches take the same arguments.
Outcome switch_case(const Operand& index, const std::vector<Body*>& branches);

template <typename T>
std::size_t count_leaves(const T& tree) {
  return walked(tree, Walk::Want::leaves).leaves().size();
}

using HostFunction = Function<std::vector<Array>, const std::vector<Array>&>;
enum class HostCallKind : std::uint8_t { pure, effect };
std::vector<Array> host_call(HostFunction f, HostCallKind kind, const std::vector<Type>& results,
                             const std::vector<Operand>& operands,
                             const std::source_location& where);

}  // namespace detail

/// Calls f(carry, x) for each slice x of `xs` along dimension 0. f returns (carry, y) as a
/// std::pair or std::tuple. Returns the last carry, and all y stacked along dimension 0. The types
/// of the carry must not change.
template <typename F, typename Carry, typename Xs>
auto scan(F f, const Carry& init, const Xs& xs, ScanOptions options = {},
          std::source_location where = std::source_location::current()) {
  using R = std::remove_cvref_t<std::invoke_result_t<F&, Carry, Xs>>;
  static_assert(detail::TupleLike<R>, "scan: f(carry, x) must return std::pair(carry, y)");
  detail::BodyOf<F, R, Carry, Xs> body(f, init, xs);
  return detail::result_of<R>(detail::scan(body, detail::count_leaves(init), options, where));
}

/// Calls f(i, carry) -> carry for i in [lower, upper); i is an i32 scalar.
template <typename F, typename Carry>
Carry fori_loop(std::int32_t lower, std::int32_t upper, F f, const Carry& init,
                std::source_location where = std::source_location::current()) {
  const auto step = [&](const std::tuple<Array, Carry>& state, std::tuple<>) {
    const auto& [i, carry] = state;
    return std::pair(std::tuple<Array, Carry>(i + Operand(1, where), f(i, carry)), std::tuple<>());
  };
  const std::int64_t length = upper > lower ? std::int64_t{upper} - lower : 0;
  const std::tuple<Array, Carry> start(full({}, Operand(lower, where), DType::i32), init);
  return std::get<1>(scan(step, start, std::tuple<>(), {.length = length}, where).first);
}

/// All partial results x_0, f(x_0, x_1), f(f(x_0, x_1), x_2), .. along `axis` of the leaves of
/// `xs`, with about 2 log2(n) calls of f instead of n. f(a, b) combines two trees like `xs`, of any
/// size along `axis`, slice by slice, and must be associative. Partial results are combined in the
/// order of jax.lax.associative_scan.
///
///   // h_t = a_t h_(t-1) + b_t
///   auto [decay, h] = associative_scan([](const Pair& l, const Pair& r) {
///     return Pair(r.first * l.first, r.first * l.second + r.second); }, Pair(a, b), 1);
template <typename F, typename Xs>
Xs associative_scan(F f, const Xs& xs, std::int64_t axis = 0, bool reverse = false,
                    std::source_location where = std::source_location::current()) {
  const auto join = [&](const std::vector<Array>& a, const std::vector<Array>& b) {
    return tree_leaves(static_cast<Xs>(f(tree_replace(xs, a), tree_replace(xs, b))));
  };
  return tree_replace(xs, detail::associative_scan(detail::JoinLeaves(join), tree_leaves(xs), axis,
                                                   reverse, where));
}

/// Calls body(carry) -> carry while condition(carry), a bool scalar, is true.
template <typename C, typename F, typename Carry>
Carry while_loop(C condition, F body, const Carry& init,
                 std::source_location where = std::source_location::current()) {
  detail::BodyOf<C, Array, Carry> test(condition, init);
  detail::BodyOf<F, Carry, Carry> step(body, init);
  return detail::result_of<Carry>(detail::while_loop(test, step, where));
}

/// branches[index](args...), with `index` clamped to the valid range. Only that branch runs. All
/// branches must return the same types.
template <typename... Branches, typename... Args>
auto switch_case(const Operand& index, std::tuple<Branches...> branches, const Args&... args) {
  using R = std::remove_cvref_t<
      std::invoke_result_t<std::tuple_element_t<0, std::tuple<Branches...>>&, Args...>>;
  return std::apply(
      [&](Branches&... fs) {
        std::tuple<detail::BodyOf<Branches, R, Args...>...> bodies(
            detail::BodyOf<Branches, R, Args...>(fs, args...)...);
        std::vector<detail::Body*> list;
        std::apply([&](auto&... body) { (list.push_back(&body), ...); }, bodies);
        return detail::result_of<R>(detail::switch_case(index, list));
      },
      branches);
}

/// on_true(args...) if `pred`, a bool scalar, is true, otherwise on_false(args...).
template <typename T, typename F, typename... Args>
auto cond(const Operand& pred, T on_true, F on_false, const Args&... args) {
  return switch_case(pred, std::tuple<F, T>(std::move(on_false), std::move(on_true)), args...);
}

// --- pipelines

/// How treduce combines what its function returns for each microbatch.
struct Add {};  // the sum, starting at zero, in the order of the microbatches
struct Max {};  // the maximum
/// Stacks the results along a new dimension.
struct Concat {
  std::int64_t axis = 0;  // a new dimension, one index per microbatch
};

namespace detail {

using ReduceOperation = std::variant<Add, Max, Concat>;

template <typename Op, typename R>
void append_operations(const Op& op, const R& result, std::vector<ReduceOperation>& operations) {
  if constexpr (TupleLike<Op>) {
    static_assert(std::tuple_size_v<Op> == std::tuple_size_v<R>,
                  "treduce: a tuple of operations must have one for each part of the result");
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (append_operations(std::get<I>(op), std::get<I>(result), operations), ...);
    }
    (std::make_index_sequence<std::tuple_size_v<Op>>());
  } else {
    operations.insert(operations.end(), count_leaves(result), op);
  }
}

/// The operation for each leaf of a result.
struct ReduceOperations {
  std::vector<ReduceOperation> (*of)(const void* operation, const void* result);
  const void* operation;
};
Outcome treduce(Body& body, const Schedule& schedule, const ReduceOperations& operations,
                const std::source_location& where);
Array microbatch_numbers(std::int64_t length, const std::source_location& where);
Array mark_stage_end(const Array& array, std::int64_t stage, const Span& where);
/// The number of the stage that the next mark ends; -1 outside of a pipeline.
std::int64_t next_stage();

}  // namespace detail

/// Calls f(slices...) for each slice along dimension 0 of `xs`, an array or a tuple of trees, and
/// combines the results by `operation`: one operation for all parts of the result, or a tuple with
/// one for each part. In a function given to mpmd_jit_with_loop, the microbatches run through the
/// stages of a pipeline in the order of `schedule`. Elsewhere they run one after the other. Both
/// give the same bits, because cotangents are summed separately for each use of a value, and after
/// the loop these sums are added in the order of the uses.
template <typename F, typename Xs, typename Op = Add>
auto treduce(F f, const Xs& xs, const Schedule& schedule, const Op& operation = {},
             std::source_location where = std::source_location::current()) {
  const auto one = [&f](const Xs& slices) {
    if constexpr (detail::TupleLike<Xs>) {
      return std::apply(f, slices);
    } else {
      return f(slices);
    }
  };
  using R = std::remove_cvref_t<std::invoke_result_t<decltype(one), Xs>>;
  detail::BodyOf<decltype(one), R, Xs> body(one, xs);
  const auto operations = [](const void* op, const void* result) {
    std::vector<detail::ReduceOperation> list;
    detail::append_operations(*static_cast<const Op*>(op), *static_cast<const R*>(result), list);
    return list;
  };
  return detail::result_of<R>(detail::treduce(body, schedule, {operations, &operation}, where));
}

/// The same, with the number of the microbatch instead of slices: calls f(i), where i is an i32
/// scalar from 0 to length - 1.
template <typename F, typename Op = Add>
auto treduce_i(F f, std::int64_t length, const Schedule& schedule, const Op& operation = {},
               std::source_location where = std::source_location::current()) {
  return treduce(std::move(f), detail::microbatch_numbers(length, where), schedule, operation,
                 where);
}

/// Marks `tree` as the end of a pipeline stage, and returns it. What is computed from it belongs to
/// the next stage; its cotangent begins the backward pass of this stage. Marks have no effect
/// outside of treduce.
template <typename T>
T mark_stage_end(T tree, std::source_location where = std::source_location::current()) {
  const Span span(where);
  const std::int64_t stage = detail::next_stage();
  if (stage < 0) return tree;
  const detail::Walk walk = detail::walked(tree, detail::Walk::Want::leaves);
  std::vector<Array> marked;
  for (const detail::Walk::Leaf& leaf : walk.leaves()) {
    marked.push_back(detail::mark_stage_end(*leaf.array, stage, span));
  }
  detail::replace_leaves(walk, marked);
  return tree;
}

/// Calls `f`, a function of the host program, with the values of `operands`, and returns its
/// results: arrays of the types `results`. Outside of jit, f is called at once; inside, each time
/// the program reaches the call. f gets whole arrays on any mesh; vmap calls it for each element. f
/// must return the same results for the same values: it may be called more often, by each of
/// several processes, or not at all if nothing needs its results. It has no derivative (see
/// custom_vjp). It runs on a thread of the engine and must not compute with the library there;
/// array() is allowed. What f throws ends the run; results of other types are a UserError.
template <std::invocable<const std::vector<Array>&> F>
std::vector<Array> pure_callback(F f, const std::vector<Type>& results,
                                 const std::vector<Operand>& operands,
                                 std::source_location where = std::source_location::current()) {
  return detail::host_call(detail::HostFunction(std::move(f)), detail::HostCallKind::pure, results,
                           operands, where);
}
/// Like pure_callback, but `f` may have side effects or depend on outside state: it is called
/// exactly once each time the program reaches the call, in program order (see debug::callback). It
/// is an error with several processes and in pipelines.
template <std::invocable<const std::vector<Array>&> F>
std::vector<Array> io_callback(F f, const std::vector<Type>& results,
                               const std::vector<Operand>& operands,
                               std::source_location where = std::source_location::current()) {
  return detail::host_call(detail::HostFunction(std::move(f)), detail::HostCallKind::effect,
                           results, operands, where);
}

/// Compiles `f`, which must contain one treduce, as a pipeline: each stage between two marks runs
/// on a group of `mesh`, in the order of the schedule. Parameters, their gradients and their
/// optimiser state live in the groups whose stages use them. Shardings in `options` are over
/// mesh.group_mesh().
template <typename F>
auto mpmd_jit_with_loop(F f, MpmdMesh mesh, JitOptions options = {},
                        std::source_location where = std::source_location::current()) {
  options.mpmd_mesh = std::move(mesh);
  return jit(std::move(f), std::move(options), where);
}

/// An array that a pipeline returned. It lives in one or more groups of an MpmdMesh; each of these
/// groups holds the whole array.
class MpmdArray {
 public:
  /// Throws UserError for an array that no pipeline returned.
  explicit MpmdArray(Array array, std::source_location where = std::source_location::current());

  const Type& type() const { return array_.type(); }
  /// The sharding over the mesh of a group.
  NamedSharding sharding() const { return array_.sharding(); }
  /// The groups that hold the array, ascending.
  const std::vector<std::int64_t>& mpmd_idxs() const { return mpmd_idxs_; }
  bool is_mpmd_replicated() const { return mpmd_idxs_.size() > 1; }
  /// The array as a group holds it. Throws UserError for a group that does not hold the array.
  Array to_mpmd_local_array(std::int64_t group,
                            std::source_location where = std::source_location::current()) const;

 private:
  Array array_;
  std::vector<std::int64_t> mpmd_idxs_;
};
/// `MpmdArray(shape=(1024, 4096), dtype=f32, mpmd_idxs=(0,), sharding=NamedSharding(...))`.
std::string to_string(const MpmdArray& array);

}  // namespace tessera
