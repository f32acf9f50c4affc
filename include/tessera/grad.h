// Derivatives and abstract evaluation.
//
//   auto [loss, grads] = value_and_grad([&](const Model& m) { return loss_of(m(x), y); })(model);
//   auto [loss, dx, dy] ... = value_and_grad<0, 1>(f)(x, y)      // here one tuple: (dx, dy)
//   auto [loss, accuracy, grads] = value_and_grad(f)(model);     // f returns (loss, accuracy)
//
//   auto [y, dx] = vjp(g, ct)(x);                                // g returns any tree of arrays
//   auto [z, dz] = jvp(g, tangent)(x);
//   Array h = hessian(loss_of_x)(x);
//
// For grad, the function returns a float scalar, or a tuple that starts with one. Inside jit, the
// derivative becomes part of the traced program; outside of jit, it is compiled and run at once.
// The gradient with respect to an nn::Buffer is zeros.
#pragma once

#include <tessera/jit.h>

namespace TESSERA_EXPORT tessera {

namespace detail {

struct Derivative {
  std::shared_ptr<void> result;    // what the function returned, with tracers as leaves
  std::vector<Array> values;       // the leaves of the result
  std::vector<Array> derivatives;  // gradients per argument leaf, or tangents per result leaf
};
/// Differentiates with respect to the arguments of `body`; leaf 0 of its result is the loss.
Derivative differentiate(Body& body, const std::source_location& where);
/// The tangents of the results of `body` for these tangents of its arguments. Throws UserError if
/// `tangents` has not the leaves of the arguments.
Derivative push_forward(Body& body, const Walk& tangents, const std::source_location& where);
/// The leaves that `body` would return, as abstract arrays.
Outcome evaluate_abstractly(Body& body, const std::source_location& where);

/// Calls f on `args`, and differentiates with respect to the arguments numbered N.
template <typename F, typename R, typename Args, std::size_t... N>
class GradientBody final : public Body {
 public:
  GradientBody(F& f, const Args& args) : f_(f), args_(args) {}
  std::shared_ptr<void> call(const std::vector<Array>& leaves) override {
    Args copies(args_);
    replace_leaves(walked(std::tie(std::get<N>(copies)...), Walk::Want::leaves), leaves);
    return std::make_shared<R>(std::apply(f_, std::move(copies)));
  }
  Walk walk_arguments(Walk::Want want) const override {
    return walked(std::tie(std::get<N>(args_)...), want);
  }
  std::span<const std::type_info* const> argument_types() const override {
    static const std::type_info* const types[] = {&typeid(std::tuple_element_t<N, Args>)...};
    return types;
  }
  Walk walk_result(void* result, Walk::Want want) const override {
    return walked(*static_cast<R*>(result), want);
  }

 private:
  F& f_;
  const Args& args_;
};

template <typename R>
auto as_tuple(R result) {
  if constexpr (std::is_base_of_v<Array, R>) {
    return std::tuple<Array>(std::move(result));
  } else {
    static_assert(TupleLike<R>,
                  "the function to differentiate must return a scalar Array, or a std::tuple or "
                  "std::pair that starts with one");
    return std::apply([](auto&&... parts) { return std::tuple(std::move(parts)...); },
                      std::move(result));
  }
}

template <std::size_t... N, typename F, typename Args>
[[gnu::cold]] auto value_and_grad_of(F& f, Args args, const std::source_location& where) {
  using R = std::remove_cvref_t<decltype(std::apply(f, std::declval<Args>()))>;
  using Wrt = std::tuple<std::tuple_element_t<N, Args>...>;
  GradientBody<F, R, Args, N...> body(f, args);
  Wrt gradients(std::get<N>(args)...);
  const Derivative d = differentiate(body, where);
  R& result = *static_cast<R*>(d.result.get());
  replace_leaves(walked(result, Walk::Want::leaves), d.values);
  replace_leaves(walked(gradients, Walk::Want::leaves), d.derivatives);
  if constexpr (sizeof...(N) == 1) {
    return std::tuple_cat(as_tuple(std::move(result)), std::move(gradients));
  } else {
    return std::tuple_cat(as_tuple(std::move(result)), std::tuple<Wrt>(std::move(gradients)));
  }
}

template <typename F, std::size_t... N>
class ValueAndGrad {
 public:
  ValueAndGrad(F f, const std::source_location& where) : f_(std::move(f)), where_(where) {}
  template <typename... Args>
  auto operator()(Args&&... args) const {
    static_assert(((N < sizeof...(Args)) && ...), "value_and_grad: too few arguments");
    return value_and_grad_of<N...>(
        f_, std::tuple<std::remove_cvref_t<Args>...>(std::forward<Args>(args)...), where_);
  }

 private:
  mutable F f_;
  std::source_location where_;
};

}  // namespace detail

/// A function (x...) -> (loss, aux..., gradients). `Argnums` are the arguments to differentiate
/// with respect to; by default, the first. Several Argnums give a tuple of gradients. Each gradient
/// has the type of its argument.
template <std::size_t... Argnums, typename F>
auto value_and_grad(F f, std::source_location where = std::source_location::current()) {
  if constexpr (sizeof...(Argnums) == 0) {
    return detail::ValueAndGrad<F, 0>(std::move(f), where);
  } else {
    return detail::ValueAndGrad<F, Argnums...>(std::move(f), where);
  }
}

/// Like value_and_grad, but returns only the gradients, or (gradients, aux...) if f returns more
/// than the loss.
template <std::size_t... Argnums, typename F>
auto grad(F f, std::source_location where = std::source_location::current()) {
  return [inner = value_and_grad<Argnums...>(std::move(f), where)](auto&&... args) {
    auto all = inner(std::forward<decltype(args)>(args)...);
    constexpr std::size_t kAux = std::tuple_size_v<decltype(all)> - 2;
    if constexpr (kAux == 0) {
      return std::get<1>(std::move(all));
    } else {
      return [&]<std::size_t... I>(std::index_sequence<I...>) {
        return std::tuple(std::get<kAux + 1>(all), std::get<I + 1>(all)...);
      }
      (std::make_index_sequence<kAux>());
    }
  };
}

namespace detail {

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
[[gnu::cold]] auto vjp_at(F& f, const C& cotangent, const Args& args,
                          const std::source_location& where) {
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
[[gnu::cold]] auto jvp_at(F& f, const T& tangents, const Args& args,
                          const std::source_location& where) {
  using R = std::remove_cvref_t<decltype(std::apply(f, args))>;
  GradientBody<F, R, Args, N...> body(f, args);
  const Derivative d = push_forward(body, walked(tangents, Walk::Want::leaves), where);
  R& result = *static_cast<R*>(d.result.get());
  R tangent(result);
  replace_leaves(walked(result, Walk::Want::leaves), d.values);
  replace_leaves(walked(tangent, Walk::Want::leaves), d.derivatives);
  return std::pair(std::move(result), std::move(tangent));
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
    if constexpr (sizeof...(Argnums) == 0) {
      return detail::vjp_at<0>(f, cotangent, copies, where);
    } else {
      return detail::vjp_at<Argnums...>(f, cotangent, copies, where);
    }
  };
}

/// A function (x...) -> (f(x...), tangent of the result) for these tangents of the arguments: one
/// tree, or a tuple if there are several `Argnums`. Besides what grad differentiates, f may contain
/// while_loop. Leaves that are not floats, and leaves of an nn::Buffer, have tangents of zeros.
template <std::size_t... Argnums, typename F, typename T>
auto jvp(F f, T tangents, std::source_location where = std::source_location::current()) {
  return [f = std::move(f), tangents = std::move(tangents), where](auto&&... args) {
    const detail::Copies<decltype(args)...> copies(args...);
    if constexpr (sizeof...(Argnums) == 0) {
      return detail::jvp_at<0>(f, tangents, copies, where);
    } else {
      return detail::jvp_at<Argnums...>(f, tangents, copies, where);
    }
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
      return detail::vjp_at<N>(f, cotangent, copies, where).second;
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
      Array result = detail::jvp_at<N>(f, tangent, copies, where).second;
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

/// The result of f(args...) with abstract leaves. Nothing is computed or allocated.
template <typename F, typename... Args>
auto eval_shape(F f, const Args&... args) {
  using R = std::remove_cvref_t<std::invoke_result_t<F&, Args...>>;
  detail::BodyOf<F, R, Args...> body(f, args...);
  return detail::result_of<R>(detail::evaluate_abstractly(body, std::source_location()));
}

}  // namespace tessera
