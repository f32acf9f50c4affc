// Gradients and abstract evaluation.
//
//   auto [loss, grads] = value_and_grad([&](const Model& m) { return loss_of(m(x), y); })(model);
//   auto [loss, gradients] = value_and_grad<0, 1>(f)(x, y);      // a tuple: (dx, dy)
//   auto [loss, accuracy, grads] = value_and_grad(f)(model);     // f returns (loss, accuracy)
//
// For grad, the function returns a float scalar, or a tuple that starts with one. Inside jit, the
// derivative becomes part of the traced program; outside of jit, it is compiled and run at once.
// The gradient with respect to an nn::Buffer is zeros. For other derivatives, see derivatives.h.
#pragma once

#include <tessera/jit.h>

namespace TESSERA_EXPORT tessera {

namespace detail {

struct LinearMap;
struct Derivative {
  std::shared_ptr<void> result = {};    // what the function returned, with tracers as leaves
  std::vector<Array> values = {};       // the leaves of the result
  std::vector<Array> derivatives = {};  // gradients per argument leaf, or tangents per result leaf
  std::shared_ptr<const LinearMap> map = {};  // of linearize
};
/// Differentiates with respect to the arguments of `body`; leaf 0 of its result is the loss.
Derivative differentiate(Body& body, const std::source_location& where);
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

/// The arguments to differentiate with respect to; by default, the first.
template <std::size_t... Argnums>
using Numbers = std::conditional_t<sizeof...(Argnums) == 0, std::index_sequence<0>,
                                   std::index_sequence<Argnums...>>;

template <typename F, std::size_t... N>
class ValueAndGrad {
 public:
  ValueAndGrad(std::index_sequence<N...> /*wrt*/, F f, const std::source_location& where)
      : f_(std::move(f)), where_(where) {}
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
  return detail::ValueAndGrad(detail::Numbers<Argnums...>(), std::move(f), where);
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

/// The result of f(args...) with abstract leaves. Nothing is computed or allocated.
template <typename F, typename... Args>
auto eval_shape(F f, const Args&... args) {
  using R = std::remove_cvref_t<std::invoke_result_t<F&, Args...>>;
  detail::BodyOf<F, R, Args...> body(f, args...);
  return detail::result_of<R>(detail::evaluate_abstractly(body, std::source_location()));
}

}  // namespace tessera
