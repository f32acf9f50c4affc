// Derivatives of functions that return any tree of arrays.
//
//   auto [y, dx] = vjp(g, cotangent)(x);
//   auto [z, dz] = jvp(g, tangent)(x);
//   auto [same, map] = linearize(g)(x);  // map(tangent) is dz
//   Array h = hessian(loss_of_x)(x);
//
// As for grad, derivatives become part of a traced program, or are compiled and run at once.
#pragma once

#include <tessera/grad.h>

namespace TESSERA_EXPORT tessera {

namespace detail {

/// The results of `body` and their tangents, given the tangents of its arguments. Throws UserError
/// if the tangents and the arguments have different leaves.
Derivative push_forward(Body& body, const Walk& tangents, const std::source_location& where);
/// The same in two steps: the results of `body` and a map, then what the map makes of tangents.
Derivative linearize_body(Body& body, const std::source_location& where);
std::vector<Array> push_forward(const LinearMap& map, const Walk& tangents,
                                const std::source_location& where);

/// The sum of the products of the leaves of two trees, f32[]. Its derivative with respect to the
/// result is the cotangent. Leaves that are not floats do not count. Throws UserError if the trees
/// differ.
Array inner_product(const Walk& result, const Walk& cotangent, const std::source_location& where);
/// f of each one-hot array of this type, stacked: [elements, ...].
Array map_basis(const Type& type, const Function<Array, const Array&>& f,
                const std::source_location& where);
/// Reshapes a table to the dimensions of `rows`, followed by those of `columns`.
Array as_jacobian(const Array& table, const Type& rows, const Type& columns, bool is_transposed,
                  const std::source_location& where);

template <std::size_t... N, typename F, typename C, typename Args>
[[gnu::cold]] auto vjp_at(std::index_sequence<N...> /*wrt*/, F& f, const C& cotangent,
                          const Args& args, const std::source_location& where) {
  using R = std::remove_cvref_t<decltype(std::apply(f, args))>;
  const auto paired = [&](const auto&... values) {
    R result = f(values...);
    Array product = inner_product(walked(result, Walk::Want::leaves),
                                  walked(cotangent, Walk::Want::leaves), where);
    return std::tuple<Array, R>(std::move(product), std::move(result));
  };
  auto [product, result, gradients] = value_and_grad_of<N...>(paired, args, where);
  return std::pair(std::move(result), std::move(gradients));
}

template <std::size_t... N, typename F, typename T, typename Args>
[[gnu::cold]] auto jvp_at(std::index_sequence<N...> /*wrt*/, F& f, const T& tangents,
                          const Args& args, const std::source_location& where) {
  using R = std::remove_cvref_t<decltype(std::apply(f, args))>;
  GradientBody<F, R, Args, N...> body(f, args);
  const Derivative d = push_forward(body, walked(tangents, Walk::Want::leaves), where);
  R& result = *static_cast<R*>(d.result.get());
  R tangent(result);
  replace_leaves(walked(result, Walk::Want::leaves), d.values);
  replace_leaves(walked(tangent, Walk::Want::leaves), d.derivatives);
  return std::pair(std::move(result), std::move(tangent));
}

/// What linearize returns: maps tangents of the arguments to those of the result, a tree R.
template <typename R>
class Linear {
 public:
  Linear(R result, std::shared_ptr<const LinearMap> map)
      : result_(std::move(result)), map_(std::move(map)) {}
  template <typename T>
  R operator()(const T& tangents,
               std::source_location where = std::source_location::current()) const {
    R result(result_);
    replace_leaves(walked(result, Walk::Want::leaves),
                   push_forward(*map_, walked(tangents, Walk::Want::leaves), where));
    return result;
  }

 private:
  R result_;  // for its structure
  std::shared_ptr<const LinearMap> map_;
};

template <std::size_t... N, typename F, typename Args>
[[gnu::cold]] auto linearize_at(std::index_sequence<N...> /*wrt*/, F& f, const Args& args,
                                const std::source_location& where) {
  using R = std::remove_cvref_t<decltype(std::apply(f, args))>;
  GradientBody<F, R, Args, N...> body(f, args);
  const Derivative d = linearize_body(body, where);
  R& result = *static_cast<R*>(d.result.get());
  replace_leaves(walked(result, Walk::Want::leaves), d.values);
  Linear<R> map(result, d.map);
  return std::pair(std::move(result), std::move(map));
}

template <typename... Args>
using Copies = std::tuple<std::remove_cvref_t<Args>...>;

}  // namespace detail

/// A function (x...) -> (f(x...), cotangents of the arguments) for this cotangent of the result.
/// `Argnums` are as for value_and_grad.
template <std::size_t... Argnums, typename F, typename C>
auto vjp(F f, C cotangent, std::source_location where = std::source_location::current()) {
  return [f = std::move(f), cotangent = std::move(cotangent), where](auto&&... args) {
    const detail::Copies<decltype(args)...> copies(args...);
    return detail::vjp_at(detail::Numbers<Argnums...>(), f, cotangent, copies, where);
  };
}

/// A function (x...) -> (f(x...), tangent of the result) for these tangents of the arguments: one
/// tree, or a tuple if there are several `Argnums`. Besides what grad differentiates, f may contain
/// while_loop. Leaves that are not floats, and leaves of an nn::Buffer, have tangents of zeros.
template <std::size_t... Argnums, typename F, typename T>
auto jvp(F f, T tangents, std::source_location where = std::source_location::current()) {
  return [f = std::move(f), tangents = std::move(tangents), where](auto&&... args) {
    const detail::Copies<decltype(args)...> copies(args...);
    return detail::jvp_at(detail::Numbers<Argnums...>(), f, tangents, copies, where);
  };
}

/// A function (x...) -> (f(x...), map), where map(tangents) is what jvp would return for these
/// tangents. What does not depend on tangents is computed once. `Argnums` are as for jvp.
template <std::size_t... Argnums, typename F>
auto linearize(F f, std::source_location where = std::source_location::current()) {
  return [f = std::move(f), where](auto&&... args) {
    const detail::Copies<decltype(args)...> copies(args...);
    return detail::linearize_at(detail::Numbers<Argnums...>(), f, copies, where);
  };
}

/// A function (x...) -> the Jacobian of f with respect to argument number N: [shape of the
/// result.., shape of the argument..]. The result of f and the argument must be arrays. Uses
/// reverse mode, which suits functions with few results.
template <std::size_t N = 0, typename F>
auto jacrev(F f, std::source_location where = std::source_location::current()) {
  return [f = std::move(f), where](auto&&... args) {
    const detail::Copies<decltype(args)...> copies(args...);
    const auto shape = [&] { return std::apply(f, copies); };
    detail::BodyOf<decltype(shape), Array> body(shape);
    const Type type = detail::evaluate_abstractly(body, where).leaves[0].type();
    const auto row = [&](const Array& cotangent) -> Array {
      return detail::vjp_at(detail::Numbers<N>(), f, cotangent, copies, where).second;
    };
    const detail::Function<Array, const Array&> rows(row);
    return detail::as_jacobian(detail::map_basis(type, rows, where), type,
                               std::get<N>(copies).type(), false, where);
  };
}
/// The same in forward mode, which suits functions with few arguments.
template <std::size_t N = 0, typename F>
auto jacfwd(F f, std::source_location where = std::source_location::current()) {
  return [f = std::move(f), where](auto&&... args) {
    const detail::Copies<decltype(args)...> copies(args...);
    Type type;
    const auto column = [&](const Array& tangent) -> Array {
      Array result = detail::jvp_at(detail::Numbers<N>(), f, tangent, copies, where).second;
      type = result.type();
      return result;
    };
    const Type wrt = std::get<N>(copies).type();
    const detail::Function<Array, const Array&> columns(column);
    const Array table = detail::map_basis(wrt, columns, where);
    return detail::as_jacobian(table, type, wrt, true, where);
  };
}
/// The same as jacrev.
template <std::size_t N = 0, typename F>
auto jacobian(F f, std::source_location where = std::source_location::current()) {
  return jacrev<N>(std::move(f), where);
}
/// A function (x...) -> the second derivatives of f, which must return a scalar: [shape of x..,
/// shape of x..].
template <std::size_t N = 0, typename F>
auto hessian(F f, std::source_location where = std::source_location::current()) {
  return jacfwd<N>(grad<N>(std::move(f), where), where);
}

}  // namespace tessera
