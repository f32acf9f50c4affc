#include "tests/fuzz/pipeline/net.h"

#include <algorithm>
#include <fmt/format.h>

#include "pipeline/model.h"

namespace tessera::fuzz {

namespace {

using Kind = Layer::Kind;

constexpr std::int64_t kLoopSteps = 3;
constexpr std::int32_t kTableRows = 5;

std::string name_of(Kind kind) {
  const auto& kinds = layer_kinds();
  return std::find_if(kinds.begin(), kinds.end(),
                      [&](const auto& item) { return item.first == kind; })
      ->second;
}

/// A block whose parameters have shapes only.
::pipeline::Block block_of(const Net& net) {
  return eval_shape([&] {
    return ::pipeline::Block(nn::Scope(Key(0)),
                             {.d_model = net.width, .heads = 1, .dtype = net.dtype});
  });
}

std::vector<Parameter> parameters_of(const Net& net, const Layer& layer) {
  const Shape matrix = {net.width, net.width};
  switch (layer.kind) {
    case Kind::dense:
      return {{"w", matrix}, {"b", {net.width}}};
    case Kind::twice:
      return {{"w", matrix}};
    case Kind::norm:
      return {{"scale", {net.width}}};
    case Kind::center:
      return {{"b", {net.width}}};
    case Kind::mix:
      return {{"w", {std::max<std::int64_t>(net.seq, 1), std::max<std::int64_t>(net.seq, 1)}}};
    case Kind::table:
      return {{"rows", {kTableRows, net.width}}};
    case Kind::loop:
      return {{"w", {kLoopSteps, net.width, net.width}}};
    case Kind::branch:
    case Kind::remat:
      return {{"w", matrix}, {"v", matrix}};
    case Kind::tied:
    case Kind::skip:
      return {};
    case Kind::block:
      break;
  }
  const ::pipeline::Block block = block_of(net);
  const std::vector<std::string> paths = tree_paths(block);
  const std::vector<Array> leaves = tree_leaves(block);
  std::vector<Parameter> parameters;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    parameters.push_back({paths[i], leaves[i].type().shape});
  }
  return parameters;
}

/// Applies the layers one after the other and keeps all their outputs, which later layers may use.
class Run {
 public:
  Run(const Net& net, const std::vector<Array>& params) : net_(net), params_(params) {
    for (const Layer& layer : net.layers) {
      first_.push_back(num_params_);
      num_params_ += parameters_of(net, layer).size();
    }
  }

  Array operator()(Array x) {
    std::size_t stage = 0;
    for (std::size_t i = 0; i < net_.layers.size(); ++i) {
      x = apply(i, x);
      given_.push_back(x);
      if (!net_.has_marks || net_.ends[stage] != i + 1) continue;
      x = mark_stage_end(x);
      given_.back() = x;
      ++stage;
    }
    return x;
  }

 private:
  Array param(std::size_t layer, std::size_t number) const {
    return astype(params_[first_[layer] + number], net_.dtype);
  }

  Array apply(std::size_t i, const Array& x) const {
    const auto p = [&](std::size_t number) { return param(i, number); };
    switch (net_.layers[i].kind) {
      case Kind::dense:
        return tanh(dot(x, p(0)) + p(1));
      case Kind::tied:
        return tied(net_.layers[i].from, x);
      case Kind::twice:
        return dot(dot(x, p(0)), p(0));
      case Kind::norm:
        return x * rsqrt(mean(square(x), -1, keepdims) + 1e-3F) * p(0);
      case Kind::skip:
        return i == 0 ? x : x + given_[net_.layers[i].from];
      case Kind::center:
        return x - mean(x, 0) + p(0);
      case Kind::mix:
        return net_.seq == 0 ? x * p(0)[0][0] : einsum("st,btd->bsd", p(0), x);
      case Kind::table:
        return x + take(p(0), minimum(arange(std::max<std::int64_t>(net_.seq, 1)), kTableRows - 1));
      case Kind::loop:
        return scan([](Array y, Array w) { return std::pair(tanh(dot(y, w)), std::tuple<>()); }, x,
                    p(0))
            .first;
      case Kind::branch:
        return cond(
            sum(x) > 0.0F, [&](Array y) { return dot(y, p(0)); },
            [&](Array y) { return dot(tanh(y), p(1)) + y; }, x);
      case Kind::remat:
        return remat([&](Array y) { return tanh(dot(tanh(dot(y, p(0))), p(1))); })(x);
      case Kind::block:
        break;
    }
    const ::pipeline::Block block = block_of(net_);
    std::vector<Array> leaves;
    for (std::size_t k = 0; k < tree_leaves(block).size(); ++k)
      leaves.push_back(params_[first_[i] + k]);
    return tree_replace(block, leaves)(x);
  }

  Array tied(std::size_t from, const Array& x) const {
    const bool has_matrix = from < net_.layers.size() && (net_.layers[from].kind == Kind::dense ||
                                                          net_.layers[from].kind == Kind::twice ||
                                                          net_.layers[from].kind == Kind::remat);
    return has_matrix ? dot(x, param(from, 0)) : x * 0.5F;
  }

  const Net& net_;
  const std::vector<Array>& params_;
  std::vector<std::size_t> first_;  // per layer: index of its first parameter
  std::size_t num_params_ = 0;
  std::vector<Array> given_;  // per layer: its output
};

}  // namespace

const std::vector<std::pair<Layer::Kind, std::string>>& layer_kinds() {
  static const std::vector<std::pair<Kind, std::string>> kinds = {
      {Kind::dense, "dense"},   {Kind::tied, "tied"},   {Kind::twice, "twice"},
      {Kind::norm, "norm"},     {Kind::skip, "skip"},   {Kind::center, "center"},
      {Kind::mix, "mix"},       {Kind::table, "table"}, {Kind::loop, "loop"},
      {Kind::branch, "branch"}, {Kind::remat, "remat"}, {Kind::block, "block"}};
  return kinds;
}

Shape Net::activation() const { return seq == 0 ? Shape{rows, width} : Shape{rows, seq, width}; }

std::string to_string(const Net& net) {
  std::string text;
  for (std::size_t i = 0; i < net.layers.size(); ++i) {
    const Layer& layer = net.layers[i];
    text += name_of(layer.kind);
    if (layer.kind == Kind::tied || layer.kind == Kind::skip)
      text += fmt::format("({})", layer.from);
    const bool is_end = std::count(net.ends.begin(), net.ends.end(), i + 1) != 0;
    text += is_end ? " | " : " ";
  }
  return text + (net.has_marks ? "" : "(cut by what it costs)");
}

std::vector<Parameter> parameters_of(const Net& net) {
  std::vector<Parameter> all;
  for (std::size_t i = 0; i < net.layers.size(); ++i) {
    for (Parameter& parameter : parameters_of(net, net.layers[i])) {
      parameter.name = fmt::format("{}_{}/{}", name_of(net.layers[i].kind), i, parameter.name);
      all.push_back(std::move(parameter));
    }
  }
  return all;
}

Array loss_of(const Net& net, const std::vector<Array>& params, Array x, const Array& targets,
              const PartitionSpec& batch) {
  x = astype(with_sharding_constraint(x, batch), net.dtype);
  return mean(square(astype(Run(net, params)(x), DType::f32) - targets));
}

}  // namespace tessera::fuzz
