// Transformations of functions: vmap, shard_map, remat, custom_vjp. Also: exported JAX programs.
//
//   auto logits = vmap(predict, {.in_axes = {none, 0}})(params, images);
//   auto per_example = vmap(grad(loss), {.in_axes = {none, 0, 0}})(params, x, y);
//   auto block = remat([&](Array x) { return mlp(x); });            // computed again in backward
//   auto f = custom_vjp([](Array x) { return log1p(exp(x)); },
//                       [](Array x) { return std::pair(log1p(exp(x)), x); },       // residuals
//                       [](Array x, Array ct) { return ct * logistic(x); });
//
// Arguments and results are trees; captured arrays become operands. See also grad.h and jit.h.
#pragma once

#include <string_view>

#include <tessera/jit.h>
#include <tessera/ops.h>

namespace TESSERA_EXPORT tessera {

/// What remat saves for the backward pass, besides its operands. It computes the rest again.
enum class RematPolicy : unsigned char {
  nothing_saveable,
  everything_saveable,
  dots_saveable,                     // results of contractions
  dots_with_no_batch_dims_saveable,  // only those without batch dimensions, so not in attention
};

namespace detail {

Outcome remat(Body& body, RematPolicy policy, const std::source_location& where);
Outcome call(Body& body, const std::string& name, const std::source_location& where);
/// `backward` takes (residuals, cotangents of the result). Both are known only after `forward` has
/// been traced, so it is made from the result of `forward`.
class BackwardMaker {
 public:
  virtual ~BackwardMaker() = default;
  /// `forward_result`: what the body of `forward` returned.
  virtual std::unique_ptr<Body> make(void* forward_result) = 0;
};
Outcome custom_vjp(Body& primal, Body& forward, BackwardMaker& backward,
                   const std::source_location& where);

template <typename F, typename Run>
class Wrapped {
 public:
  Wrapped(F f, Run run) : f_(std::move(f)), run_(std::move(run)) {}
  template <typename... Args>
  auto operator()(const Args&... args) const {
    using R = std::remove_cvref_t<std::invoke_result_t<F&, Args...>>;
    BodyOf<F, R, Args...> body(f_, args...);
    return result_of<R>(run_(body));
  }

 private:
  mutable F f_;
  Run run_;
};

/// `value` as a tuple of trees, one per argument.
template <typename T>
auto as_arguments(T&& value) {
  if constexpr (TupleLike<std::remove_cvref_t<T>>) {
    return std::forward<T>(value);
  } else {
    return std::tuple<std::remove_cvref_t<T>>(std::forward<T>(value));
  }
}

template <typename B, typename R, typename Residuals>
class BackwardOf final : public BackwardMaker {
 public:
  explicit BackwardOf(B& f) : f_(f) {}
  std::unique_ptr<Body> make(void* forward_result) override {
    auto& pair = *static_cast<std::pair<R, Residuals>*>(forward_result);
    using Result = std::remove_cvref_t<std::invoke_result_t<B&, Residuals, R>>;
    return std::make_unique<BodyOf<B, Result, Residuals, R>>(f_, pair.second, pair.first);
  }

 private:
  B& f_;
};

template <typename F, typename Forward, typename B>
class CustomVjp {
 public:
  CustomVjp(F f, Forward forward, B backward, const std::source_location& where)
      : f_(std::move(f)),
        forward_(std::move(forward)),
        backward_(std::move(backward)),
        where_(where) {}
  template <typename... Args>
  auto operator()(const Args&... args) const {
    using R = std::remove_cvref_t<std::invoke_result_t<F&, Args...>>;
    using Pair = std::remove_cvref_t<std::invoke_result_t<Forward&, Args...>>;
    using Residuals = typename Pair::second_type;
    static_assert(std::is_same_v<typename Pair::first_type, R>,
                  "custom_vjp: forward must return std::pair(result of the function, residuals)");
    BodyOf<F, R, Args...> primal(f_, args...);
    BodyOf<Forward, Pair, Args...> forward(forward_, args...);
    BackwardOf<B, R, Residuals> backward(backward_);
    return result_of<R>(detail::custom_vjp(primal, forward, backward, where_));
  }

 private:
  mutable F f_;
  mutable Forward forward_;
  mutable B backward_;
  std::source_location where_;
};

}  // namespace detail

/// f, except that its derivative computes again what `policy` does not save: less memory for more
/// work, with the same bits.
template <typename F>
auto remat(F f, RematPolicy policy = RematPolicy::nothing_saveable,
           std::source_location where = std::source_location::current()) {
  auto run = [policy, where](detail::Body& body) { return detail::remat(body, policy, where); };
  return detail::Wrapped<F, decltype(run)>(std::move(f), std::move(run));
}

/// f with a custom derivative: forward(args...) -> std::pair(f(args...), residuals), and
/// backward(residuals, cotangent of the result) -> the cotangent of the argument, or a tuple with
/// one per argument. The functions may capture arrays that are not differentiated.
template <typename F, typename Forward, typename B>
auto custom_vjp(F f, Forward forward, B backward,
                std::source_location where = std::source_location::current()) {
  return detail::CustomVjp<F, Forward, B>(std::move(f), std::move(forward), std::move(backward),
                                          where);
}

// --- vmap

/// The batch dimension of an array; negative axes count from the end. `none`: the array is the same
/// for all elements of the batch.
struct BatchAxis {
  std::int64_t value = 0;
  bool is_mapped = true;

  template <std::integral T>
  BatchAxis(T axis)  // NOLINT(google-explicit-constructor)
      : value(static_cast<std::int64_t>(axis)) {}
  BatchAxis(None) : is_mapped(false) {}  // NOLINT(google-explicit-constructor)
};

/// One axis for all arguments, or a list with one for each.
struct BatchAxes {
  std::vector<BatchAxis> axes;
  bool is_list;

  template <std::integral T>
  BatchAxes(T axis) : axes{axis}, is_list(false) {}  // NOLINT(google-explicit-constructor)
  BatchAxes(None) : axes{none}, is_list(false) {}    // NOLINT(google-explicit-constructor)
  BatchAxes(std::initializer_list<BatchAxis> list) : axes(list), is_list(true) {}
  BatchAxes(std::vector<BatchAxis> list)  // NOLINT(google-explicit-constructor)
      : axes(std::move(list)), is_list(true) {}
};

/// Options of vmap.
struct VmapOptions {
  BatchAxes in_axes = 0;       // per argument; applies to all leaves of the argument
  BatchAxis out_axes = 0;      // of all leaves of the result
  std::string axis_name = {};  // for collectives over the elements of the batch
};

namespace detail {

/// Calls `body` on one element, batches the traced program, and returns the results for the batch.
Outcome map_over_batch(Body& body, const VmapOptions& options, const std::source_location& where);

}  // namespace detail

/// A function that applies `f`, a function of one element, to a whole batch. Mapped arguments and
/// all results have one dimension more than in `f`. Arrays that `f` captures are the same for all
/// elements. Row i of the results has the same bits as `f` called with row i of the arguments.
///
/// If the branch of a cond depends on the element, all branches run. If the condition of a
/// while_loop does, the loop runs until every element is done. So even work whose results are
/// discarded must terminate and have finite derivatives.
template <typename F>
auto vmap(F f, VmapOptions options = {},
          std::source_location where = std::source_location::current()) {
  auto run = [options = std::move(options), where](detail::Body& body) {
    return detail::map_over_batch(body, options, where);
  };
  return detail::Wrapped<F, decltype(run)>(std::move(f), std::move(run));
}

// --- shard_map

/// Options of shard_map.
struct ShardMapOptions {
  Mesh mesh = {};                            // if it has no axes, the current mesh
  std::vector<Shardings> in_specs = {};      // one per argument: how it is split into tiles
  Shardings out_specs = {};                  // how the tiles form the result
  std::vector<std::string> axis_names = {};  // the mapped axes; empty: all of the mesh
  bool check_vma = true;  // check that results are equal along axes that out_specs does not name
};

namespace detail {
Outcome map_over_mesh(Body& body, const ShardMapOptions& options,
                      const std::source_location& where);
}  // namespace detail

/// A function that runs `f`, a function of one device's tiles, on all devices of the mesh. The
/// devices communicate through the collectives below. All shards of a dimension must have the same
/// size. The compiler splits `f` over axes that `axis_names` leaves out, as in jit. A derivative
/// taken within `f` is the derivative of the sum of what all devices compute.
template <typename F>
auto shard_map(F f, ShardMapOptions options,
               std::source_location where = std::source_location::current()) {
  auto run = [options = std::move(options), where](detail::Body& body) {
    return detail::map_over_mesh(body, options, where);
  };
  return detail::Wrapped<F, decltype(run)>(std::move(f), std::move(run));
}

// Collectives over axes that shard_map, or vmap with an axis_name, maps. Elsewhere they throw
// UserError.

/// One axis or several; the first one is major.
struct CollectiveAxes {
  std::vector<std::string> names;
  CollectiveAxes(const char* name);                         // NOLINT(google-explicit-constructor)
  CollectiveAxes(std::string name);                         // NOLINT(google-explicit-constructor)
  CollectiveAxes(std::initializer_list<const char*> list);  // NOLINT(google-explicit-constructor)
};

std::int64_t axis_size(const CollectiveAxes& axes,
                       std::source_location where = std::source_location::current());
/// The position of this device, or element of the batch, along the axes: i32[].
Array axis_index(const CollectiveAxes& axes,
                 std::source_location where = std::source_location::current());
/// Reductions over the axes. All elements get the same result. Sums follow the summation tree.
Array psum(Operand x, const CollectiveAxes& axes);
Array pmean(Operand x, const CollectiveAxes& axes);
Array pmax(Operand x, const CollectiveAxes& axes);
Array pmin(Operand x, const CollectiveAxes& axes);

/// Where the n parts go: a new dimension `dim`; with `tiled`, dimension `dim`, n times as large.
struct AxisDim {
  std::int64_t dim = 0;
  bool tiled = false;
};
/// The values of all n elements, stacked along a new dimension or concatenated.
Array all_gather(Operand x, const CollectiveAxes& axes, const AxisDim& options = {});
/// Sums over all elements; element i gets slice i of the sum or, with `tiled`, part i of n.
Array psum_scatter(Operand x, const std::string& axis, const AxisDim& options = {});
/// Sends along pairs (source, destination). An element that receives nothing gets zeros.
Array ppermute(Operand x, const std::string& axis,
               const std::vector<std::pair<std::int64_t, std::int64_t>>& pairs);
/// Sends slice i along split_dim to element i, and stacks what arrives along concat_dim. With
/// `tiled`, sends part i and concatenates.
Array all_to_all(Operand x, const std::string& axis, std::int64_t split_dim,
                 std::int64_t concat_dim, bool tiled = false);

// --- programs of JAX

/// A StableHLO program: a function of a list of arrays. Within jit, it is compiled for the mesh of
/// the call, differentiated and batched like any other function.
///
///   const ImportedProgram step = import_stablehlo(bytes);
///   const auto run = jit([&](std::vector<Array> x) { return step(x); }, {.donate_argnums = {0}});
class ImportedProgram {
 public:
  const std::vector<Type>& arguments() const;
  const std::vector<Type>& results() const;
  /// Per argument: whether the program says that its memory may be reused.
  const std::vector<bool>& donated() const;
  /// The mesh that the program names (without axes if it names none), and how it splits arguments.
  const Mesh& mesh() const;
  const std::vector<NamedSharding>& shardings() const;
  /// Throws UserError for arguments of other types. On any mesh other than its own, the shardings
  /// that the program states have no effect.
  std::vector<Array> operator()(const std::vector<Array>& arguments,
                                std::source_location where = std::source_location::current()) const;

 private:
  struct State;
  explicit ImportedProgram(std::shared_ptr<const State> state);
  friend ImportedProgram import_stablehlo(std::string_view bytes, std::source_location where);
  std::shared_ptr<const State> state_;
};
/// Reads bytecode: the bytes of `jax.export.export(jitted)(...).mlir_module_serialized`. Throws
/// UserError, with the line of the Python program, for what Tessera cannot compute.
ImportedProgram import_stablehlo(std::string_view bytes,
                                 std::source_location where = std::source_location::current());

}  // namespace tessera
