// A multi-layer perceptron whose dimensions are annotated in two ways: with mesh axes, or with
// logical names, which rules translate to mesh axes.
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

/// relu(x W1) W2, with the batch split over `data` and the hidden features over `model`.
struct DotReluDot {
  static constexpr const char* kName = "DotReluDot";
  static SpecEntry layer_axis() { return none; }
  Param w1, w2;

  DotReluDot(const nn::Scope& scope, std::int64_t depth)
      : w1(scope.param("W1", nn::with_partitioning(nn::init::xavier_normal(), {none, "model"}),
                       {depth, depth})),
        w2(scope.param("W2", nn::with_partitioning(nn::init::xavier_normal(), {"model", none}),
                       {depth, depth})) {}

  Array operator()(const Array& x) const {
    const Array y =
        with_sharding_constraint(relu(dot(x, astype(w1, x.dtype()))), P{"data", "model"});
    return with_sharding_constraint(dot(y, astype(w2, x.dtype())), P{"data", none});
  }
  TESSERA_MODULE(w1, w2)
};

/// The same layer with logical names: rules decide over which axes its dimensions are split.
struct LogicalDotReluDot {
  static constexpr const char* kName = "LogicalDotReluDot";
  static SpecEntry layer_axis() { return "layer"; }
  Param w1, w2;

  LogicalDotReluDot(const nn::Scope& scope, std::int64_t depth)
      : w1(scope.param(
            "W1", nn::with_logical_partitioning(nn::init::xavier_normal(), {"embed", "hidden"}),
            {depth, depth})),
        w2(scope.param(
            "W2", nn::with_logical_partitioning(nn::init::xavier_normal(), {"hidden", "embed"}),
            {depth, depth})) {}

  Array operator()(const Array& x) const {
    const Array y =
        nn::with_logical_constraint(relu(dot(x, astype(w1, x.dtype()))), {"batch", "hidden"});
    return nn::with_logical_constraint(dot(y, astype(w2, x.dtype())), {"batch", "embed"});
  }
  TESSERA_MODULE(w1, w2)
};

/// The layers: a compiled loop over stacked weights (nn::scan), or one layer after the other.
template <typename Layer>
struct Stack {
  std::optional<nn::Scanned<Layer>> scanned;
  std::vector<Layer> blocks;

  Stack(const nn::Scope& scope, const Config& c) {
    const std::string name = Layer::kName;
    if (c.use_scan) {
      scanned = nn::scan<Layer>(scope / ("Scan" + name + "_0"),
                                {.length = c.layers, .axis_name = Layer::layer_axis()}, c.depth);
      return;
    }
    for (std::int64_t i = 0; i < c.layers; ++i) {
      blocks.emplace_back(scope / (name + "_" + std::to_string(i)), c.depth);
    }
  }

  /// [batch, depth] -> [batch, depth].
  Array operator()(Array x) const {
    if (scanned) return (*scanned)(x);
    for (const Layer& block : blocks) x = block(x);
    return x;
  }
  TESSERA_MODULE(scanned, blocks)
};

using MLP = Stack<DotReluDot>;
using LogicalMLP = Stack<LogicalDotReluDot>;

}  // namespace mlp
