// Equal layers, stacked and applied one after the other in a loop.
//
//   auto blocks = nn::scan<Block>(scope / "blocks", {.length = 12}, config);
//   Array y = blocks(x, mode, mask);   // block(x, mode, mask) for each block
#pragma once

#include <optional>

#include <tessera/control.h>
#include <tessera/functions.h>

namespace TESSERA_EXPORT tessera {
namespace nn {

namespace detail {

/// The size of dimension 0 of the leaves. Throws UserError if there are none.
std::int64_t num_layers(const std::vector<Array>& leaves, const std::source_location& where);

/// What a loop over `length` layers slices for an argument: a key per layer, if it is a mode.
template <typename T>
auto slices_of(const T& argument, std::int64_t length) {
  if constexpr (std::same_as<T, Mode>) {
    Mode modes = argument;
    if (modes.dropout_key)
      modes.dropout_key->data() = random::split_data(*argument.dropout_key, length);
    return modes;
  } else {
    return std::tuple<>();
  }
}

/// The argument of one layer.
template <typename T, typename Slice>
const auto& of_layer(const T& argument, const Slice& slice) {
  if constexpr (std::same_as<T, Mode>) {
    return slice;
  } else {
    return argument;
  }
}

template <typename Layer, typename... More>
Array call_stacked(Layer& layer, const Array& x, const More&... more) {
  if constexpr (sizeof...(More) == 0 ||
                (sizeof...(More) == 1 && (std::same_as<More, Mode> && ...))) {
    return call_layer(layer, x, more...);
  } else {
    return layer(x, more...);
  }
}

/// The values of a layer's buffers. A const layer does not change them.
template <typename Layer>
std::vector<Array> buffers_of(Layer& layer) {
  std::vector<Array> buffers;
  if constexpr (!std::is_const_v<Layer>) {
    for (const Param& leaf : tree_params(layer)) {
      if (!leaf.is_trained()) buffers.push_back(leaf);
    }
  }
  return buffers;
}

/// The layer with other buffers.
template <typename Layer>
Layer with_buffers(const Layer& layer, const std::vector<Array>& buffers) {
  std::vector<Array> leaves;
  std::size_t next = 0;
  for (const Param& leaf : tree_params(layer)) {
    leaves.push_back(leaf.is_trained() ? leaf : buffers[next++]);
  }
  return tree_replace(layer, leaves);
}

}  // namespace detail

/// Equal layers applied one after the other. Dimension 0 of each parameter and buffer is the layer.
template <typename Layer>
struct Scanned {
  Layer layers;
  /// Calls layer(x, more...) for each layer; `more` are for example a mode and a mask. All layers
  /// get the same ones, except that each draws with a key of its own, split from the key of a mode.
  /// A layer that takes no mode is called without it, as in Sequential.
  template <typename... More>
  Array operator()(Operand x, const More&... more) const {
    return applied<const Layer>(x, more...).first;
  }
  /// Also updates the buffers of the layers.
  template <typename... More>
  Array operator()(Operand x, const More&... more) {
    const auto [y, buffers] = applied<Layer>(x, more...);
    layers = detail::with_buffers(layers, buffers);
    return y;
  }
  TESSERA_MODULE(layers)

 private:
  /// The result and the new buffers of all layers.
  template <typename L, typename... More>
  std::pair<Array, std::vector<Array>> applied(const Operand& x, const More&... more) const {
    const CallScope scope(x.where);
    [[maybe_unused]] const std::int64_t length = detail::num_layers(tree_leaves(layers), x.where);
    const std::tuple all(layers, std::tuple(detail::slices_of(more, length)...));
    const auto step = [&](const Array& y, const std::remove_const_t<decltype(all)>& one) {
      L layer = std::get<0>(one);
      const auto call = [&](const auto&... slices) {
        return detail::call_stacked(layer, y, detail::of_layer(more, slices)...);
      };
      const Array next = std::apply(call, std::get<1>(one));
      return std::pair(next, detail::buffers_of(layer));
    };
    return tessera::scan(step, x.array, all);
  }
};

struct ScanOptions {
  std::int64_t length;
  std::optional<SpecEntry> axis_name = {};  // of the layer dimension, for annotated parameters
  std::source_location where = std::source_location::current();
};

/// Makes the layers Layer(scope, args...) as Linen's nn.scan does.
template <typename Layer, typename... Args>
Scanned<Layer> scan(const Scope& scope, const ScanOptions& options, const Args&... args) {
  const Scope stacked = scope.stacked(options.length, options.axis_name, options.where);
  // Linen traces the layer twice, and the keys of the second time count.
  eval_shape([&] { return Layer(stacked, args...); });
  return Scanned<Layer>{Layer(stacked.traced_again(), args...)};
}

}  // namespace nn
}  // namespace tessera
