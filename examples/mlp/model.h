// A multi-layer perceptron whose weights and activations say over which mesh axes they are split:
// the batch over `data`, the hidden features over `model`.
#pragma once

#include <tessera/nn.h>
#include <tessera/tessera.h>

namespace mlp {

using namespace tessera;

struct Config {
  std::int64_t depth = 1024;  // width of inputs and of hidden layers
  std::int64_t layers = 4;
  bool use_scan = true;
};

struct DotReluDot {
  Param w1, w2;

  DotReluDot(const nn::Scope& scope, std::int64_t depth)
      : w1(scope.param("W1", nn::with_partitioning(nn::init::xavier_normal(), {none, "model"}),
                       {depth, depth})),
        w2(scope.param("W2", nn::with_partitioning(nn::init::xavier_normal(), {"model", none}),
                       {depth, depth})) {}

  Array operator()(const Array& x) const {
    const Array y = with_sharding_constraint(relu(dot(x, w1)), P{"data", "model"});
    return with_sharding_constraint(dot(y, w2), P{"data", none});
  }
  TESSERA_MODULE(w1, w2)
};

/// Layers as one compiled loop over stacked weights, or one after the other.
struct MLP {
  std::optional<nn::Scanned<DotReluDot>> scanned;
  std::vector<DotReluDot> blocks;

  MLP(const nn::Scope& scope, const Config& c) {
    if (c.use_scan) {
      scanned = nn::scan<DotReluDot>(scope / "ScanDotReluDot_0",
                                     {.length = c.layers, .axis_name = none}, c.depth);
      return;
    }
    for (std::int64_t i = 0; i < c.layers; ++i) {
      blocks.emplace_back(scope / ("DotReluDot_" + std::to_string(i)), c.depth);
    }
  }

  /// [batch, depth] -> [batch, depth].
  Array operator()(Array x) const {
    if (scanned) return (*scanned)(x);
    for (const DotReluDot& block : blocks) x = block(x);
    return x;
  }
  TESSERA_MODULE(scanned, blocks)
};

}  // namespace mlp
