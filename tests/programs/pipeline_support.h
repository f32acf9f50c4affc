// A small model whose step runs as a pipeline.
#pragma once

#include <tessera/error.h>
#include <tessera/tessera.h>

#include "api/test_support.h"

namespace tessera::testing {

inline constexpr std::int64_t kLayers = 8;
inline constexpr std::int64_t kWidth = 16;

/// Layers, a matrix that two distant stages use, one that a layer uses twice, and a skip
/// connection.
struct PipelineNet {
  std::vector<Array> layers;
  Array tied;
  Array twice;
  Array bias;
  TESSERA_TREE(layers, tied, twice, bias)
};

inline PipelineNet make_net() {
  PipelineNet net{.layers = {},
                  .tied = numbers({kWidth, kWidth}, 100) * 0.2F,
                  .twice = numbers({kWidth, kWidth}, 101) * 0.2F,
                  .bias = numbers({kWidth}, 102)};
  for (std::int64_t i = 0; i < kLayers; ++i) {
    net.layers.push_back(numbers({kWidth, kWidth}, i) * 0.2F);
  }
  return net;
}

inline Array loss_of(const PipelineNet& net, Array x, const Array& y, std::int64_t stages) {
  x = with_sharding_constraint(x, P{"data"});
  Array skipped;
  for (std::int64_t i = 0; i < kLayers; ++i) {
    x = tanh(dot(x, net.layers[static_cast<std::size_t>(i)]) + net.bias);
    if (i == 0 || i == kLayers - 1) x = dot(x, net.tied);
    if (i == 4) x = dot(dot(x, net.twice), net.twice);
    if (i == 1) skipped = x;
    if (i == 6) x = x + skipped;
    if ((i + 1) % (kLayers / stages) == 0) x = mark_stage_end(x);
  }
  return mean(square(x - y));
}

using PipelineBatch = std::tuple<Array, Array>;

inline PipelineBatch make_batch(std::int64_t microbatches) {
  return {numbers({microbatches, 4, kWidth}, 7), numbers({microbatches, 4, kWidth}, 8)};
}

/// Scales gradients by their global norm, which combines values of all groups.
inline std::tuple<PipelineNet, Array, Array> step_of(const PipelineNet& net,
                                                     const PipelineBatch& batch,
                                                     const Schedule& schedule) {
  const auto one = [&](Array x, Array y) {
    auto [loss, grads] = value_and_grad([&](const PipelineNet& params) {
      return loss_of(params, x, y, schedule.num_stages());
    })(net);
    return std::tuple(loss, loss, grads);
  };
  const auto [loss, losses, grads] =
      treduce(one, batch, schedule, std::tuple(Add{}, Concat{}, Add{}));
  Array squares = zeros({});
  for (const Array& grad : tree_leaves(grads)) squares = squares + sum(square(grad));
  const Array rate = 0.1F / (sqrt(squares) + 1.0F);
  const auto update = [&](const Array& p, const Array& g) { return p - g * rate; };
  return {tree_map(update, net, grads), loss, losses};
}

inline MpmdMesh groups(std::int64_t count, std::int64_t data = 1) {
  return {make_mesh({{"stage", count}, {"data", data}}), "stage"};
}

}  // namespace tessera::testing
