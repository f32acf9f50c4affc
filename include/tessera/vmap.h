// vmap: a function of one element becomes a function of a batch of elements.
//
//   auto logits = vmap(predict, {.in_axes = {none, 0}})(params, images);
//   auto per_example = vmap(grad(loss), {.in_axes = {none, 0, 0}})(params, x, y);
#pragma once

#include <tessera/jit.h>

namespace tessera {

/// The dimension along which an array holds a batch; negative counts from the end. `none`: the
/// array is the same for all elements of the batch.
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

struct VmapOptions {
  BatchAxes in_axes = 0;   // an argument's axis is that of all its leaves
  BatchAxis out_axes = 0;  // of all leaves of the result
};

namespace detail {

/// Calls `body` on one element, batches what it did, and returns its results for the batch.
Outcome map_over_batch(Body& body, const VmapOptions& options, const std::source_location& where);

template <typename F>
class Vmapped {
 public:
  Vmapped(F f, VmapOptions options, const std::source_location& where)
      : f_(std::move(f)), options_(std::move(options)), where_(where) {}
  template <typename... Args>
  auto operator()(const Args&... args) const {
    using R = std::remove_cvref_t<std::invoke_result_t<F&, Args...>>;
    BodyOf<F, R, Args...> body(f_, args...);
    return result_of<R>(map_over_batch(body, options_, where_));
  }

 private:
  mutable F f_;
  VmapOptions options_;
  std::source_location where_;
};

}  // namespace detail

/// A function that applies `f`, a function of one element, to a batch of elements at once. Mapped
/// arguments have one more dimension than `f` sees, so have all results. Arrays that `f` captures
/// are the same for all elements. Row i has the bits of the call with rows i.
///
/// Where the branch of a cond depends on the element all branches are run, and a while_loop whose
/// condition does so runs until every element is done: work whose results are thrown away must end
/// too, and its derivatives must not be infinite.
template <typename F>
auto vmap(F f, VmapOptions options = {},
          std::source_location where = std::source_location::current()) {
  return detail::Vmapped<F>(std::move(f), std::move(options), where);
}

}  // namespace tessera
