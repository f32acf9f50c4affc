// Programs and helpers that the tests of partitioning share.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "ir/builder.h"
#include "ops/emit.h"
#include "ops/ops.h"
#include "partition/partition.h"

namespace tessera::partition::testing {

using ir::Builder;
using ir::Function;
using ir::Ints;
using ir::ValueId;

/// Writes equations the short way.
struct Program {
  Function function;
  Builder b{function};

  explicit Program(Mesh mesh) { function.mesh = std::move(mesh); }
  ValueId input(Shape shape) { return b.add_input({DType::f32, std::move(shape)}); }
  ValueId full(double value, Shape shape) {
    return ops::full(b, value, {DType::f32, std::move(shape)});
  }
  ValueId broadcast(ValueId x, Ints dims, Shape shape) {
    return ops::broadcast_in_dim(b, x, std::move(dims), std::move(shape));
  }
  ValueId dot(ValueId x, ValueId y, Ints x_dims, Ints y_dims) {
    return ops::dot_general(b, x, y, {std::move(x_dims), std::move(y_dims), {}, {}});
  }
  ValueId batched_dot(ValueId x, ValueId y, std::int64_t x_dim, std::int64_t y_dim, Ints batch) {
    return ops::dot_general(b, x, y, {{x_dim}, {y_dim}, batch, batch});
  }
  ValueId sum(ValueId x, Ints dims) { return ops::reduce_sum(b, x, std::move(dims)); }
  ValueId largest(ValueId x, Ints dims) { return ops::reduce_max(b, x, std::move(dims)); }
  ValueId reshape(ValueId x, Shape shape) { return ops::reshape(b, x, std::move(shape)); }
  ValueId transpose(ValueId x, Ints order) { return ops::transpose(b, x, std::move(order)); }
  ValueId constrain(ValueId x, const P& entries) {
    return ops::sharding_constraint(b, x, spec(x, entries));
  }
  ValueId add(ValueId x, ValueId y) { return ops::add(b, x, y); }
  ValueId sub(ValueId x, ValueId y) { return ops::sub(b, x, y); }
  ValueId mul(ValueId x, ValueId y) { return ops::mul(b, x, y); }
  ValueId relu(ValueId x) { return ops::max(b, x, full(0, function.type(x).shape)); }
  ValueId scaled(ValueId x, double by) { return mul(x, full(by, function.type(x).shape)); }

  Sharding spec(ValueId id, const P& entries) const {
    return to_sharding(function.mesh, entries, function.type(id), "test", {});
  }
};

/// The function on one device, with every value whole and without equations that nothing reads.
inline Function on_one_device(const Program& program, std::vector<ValueId> outputs) {
  Function function = program.function;
  function.outputs = std::move(outputs);
  function = ir::without_dead_code(std::move(function));
  for (ir::Value& value : function.values) value.sharding = replicated_sharding(value.type.rank());
  return function;
}

/// A training step of `layers` blocks y = relu(x W1) W2 with momentum. Inputs: x, target, then the
/// weights W1, W2 of each layer, then their momenta; outputs: loss, weights, momenta.
struct MlpStep {
  Program program;
  std::vector<ValueId> weights, momenta;
  ValueId x, target;

  MlpStep(const Mesh& mesh, std::int64_t batch, std::int64_t width, std::int64_t hidden, int layers)
      : program(mesh) {
    Program& p = program;
    x = p.input({batch, width});
    target = p.input({batch, width});
    for (auto* list : {&weights, &momenta}) {
      for (int i = 0; i < layers; ++i) {
        list->push_back(p.input({width, hidden}));
        list->push_back(p.input({hidden, width}));
      }
    }
    std::vector<ValueId> ins, hiddens;
    ValueId y = x;
    for (std::size_t i = 0; i < weights.size(); i += 2) {
      ins.push_back(y);
      hiddens.push_back(p.relu(p.dot(y, weights[i], {1}, {0})));
      y = p.dot(hiddens.back(), weights[i + 1], {1}, {0});
    }
    const ValueId error = p.sub(y, target);
    const ValueId loss = p.sum(p.mul(error, error), {0, 1});
    std::vector<ValueId> grads(weights.size());
    ValueId g = p.scaled(error, 2);
    for (std::size_t i = weights.size(); i > 0; i -= 2) {
      const ValueId h = hiddens[i / 2 - 1];
      grads[i - 1] = p.dot(h, g, {0}, {0});
      const ValueId gh = p.mul(p.dot(g, weights[i - 1], {1}, {1}), h);
      grads[i - 2] = p.dot(ins[i / 2 - 1], gh, {0}, {0});
      if (i > 2) g = p.dot(gh, weights[i - 2], {1}, {1});
    }
    std::vector<ValueId> outputs{loss}, moments;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      moments.push_back(p.add(p.scaled(momenta[i], 0.5), grads[i]));
      outputs.push_back(p.sub(weights[i], p.scaled(moments[i], 0.25)));
    }
    outputs.insert(outputs.end(), moments.begin(), moments.end());
    p.b.set_outputs(outputs);
  }

  /// Shardings of all inputs: `batch` for x and target, one spec each for W1 and W2.
  PartitionOptions options(const P& batch, const P& first, const P& second) const {
    PartitionOptions options;
    options.passes.verify = true;
    options.output_follows.assign(program.function.outputs.size(), -1);
    for (std::size_t i = 0; i < program.function.inputs.size(); ++i) {
      const ValueId id = program.function.inputs[i];
      const bool is_data = i < 2;
      options.inputs.push_back(program.spec(id, is_data ? batch : i % 2 == 0 ? first : second));
      options.is_storage.push_back(!is_data);
      if (!is_data) options.output_follows[i - 1] = static_cast<int>(i);
    }
    return options;
  }
};

/// A training step of a transformer: embedding, then `layers` blocks of normalisation and attention
/// with a residual. Inputs: tokens, then the weights; outputs: loss, then the updated weights.
class TransformerStep {
 public:
  Program program;
  ValueId tokens;

  TransformerStep(const Mesh& mesh, int layers) : program(mesh) {
    Program& p = program;
    tokens = p.b.add_input({DType::i32, {kBatch, kLength}});
    const ValueId table = weight({kVocab, kWidth});
    std::vector<Block> blocks(static_cast<std::size_t>(layers));
    ValueId x = ops::gather(p.b, table, tokens, 0);
    for (Block& block : blocks) x = forward(block, x);
    std::vector<ValueId> outputs{p.sum(p.mul(x, x), {0, 1, 2})};
    ValueId g = p.scaled(x, 2);
    while (!blocks.empty()) {
      g = backward(blocks.back(), g);
      blocks.pop_back();
    }
    update(table, ops::scatter_add(p.b, tokens, g, 0, kVocab));
    for (const auto& [w, gradient] : gradients_) {
      outputs.push_back(p.sub(w, p.scaled(gradient, 0.5)));
    }
    p.b.set_outputs(outputs);
  }

  /// `is_fsdp`: every weight is split along its largest axis; otherwise weights are replicated.
  PartitionOptions options(bool is_fsdp) const {
    PartitionOptions options;
    options.passes.verify = true;
    options.inputs = {program.spec(tokens, {"data"})};
    options.is_storage = {false};
    options.outputs.resize(program.function.outputs.size());
    for (ValueId id : weights_) {
      const Shape& shape = program.function.type(id).shape;
      std::vector<SpecEntry> entries(shape.size(), none);
      const auto largest = std::max_element(shape.begin(), shape.end()) - shape.begin();
      if (is_fsdp) entries[static_cast<std::size_t>(largest)] = "data";
      options.inputs.push_back(program.spec(id, P(entries)));
      options.is_storage.push_back(true);
    }
    for (std::size_t i = 0; i < gradients_.size(); ++i) {  // in the order of the gradients
      const auto place = std::find(weights_.begin(), weights_.end(), gradients_[i].first);
      options.outputs[i + 1] =
          options.inputs[static_cast<std::size_t>(place - weights_.begin()) + 1];
    }
    return options;
  }

 private:
  static constexpr std::int64_t kBatch = 32, kLength = 64, kVocab = 512, kWidth = 256;
  static constexpr std::int64_t kHeads = 4, kHead = 64;
  struct Block {
    ValueId scale, query, key, value, out;             // weights
    ValueId x, normal, wide_scale, q, k, v, p, heads;  // activations
  };

  ValueId weight(Shape shape) {
    weights_.push_back(program.input(std::move(shape)));
    return weights_.back();
  }
  void update(ValueId weight, ValueId gradient) { gradients_.emplace_back(weight, gradient); }
  ValueId rows(ValueId x) {  // the sum over the last dimension, repeated along it
    const Shape shape = program.function.type(x).shape;
    const auto last = static_cast<std::int64_t>(shape.size()) - 1;
    return ops::expand_dims(program.b, program.sum(x, {last}), {last}, shape);
  }

  ValueId forward(Block& block, ValueId x) {
    Program& p = program;
    block.scale = weight({kWidth});
    for (ValueId* w : {&block.query, &block.key, &block.value}) {
      *w = weight({kWidth, kHeads, kHead});
    }
    block.out = weight({kHeads, kHead, kWidth});
    block.x = p.sub(x, p.scaled(rows(x), 1.0 / kWidth));
    block.wide_scale = p.broadcast(block.scale, {2}, {kBatch, kLength, kWidth});
    block.normal = p.mul(block.x, block.wide_scale);
    block.q = p.dot(block.normal, block.query, {2}, {0});
    block.k = p.dot(block.normal, block.key, {2}, {0});
    block.v = p.dot(block.normal, block.value, {2}, {0});
    const ValueId s = p.batched_dot(block.q, block.k, 3, 3, {0, 2});  // b h t u
    const ValueId top = ops::expand_dims(p.b, p.largest(s, {3}), {3}, p.function.type(s).shape);
    const ValueId e = ops::exp(p.b, p.sub(s, top));
    block.p = ops::div(p.b, e, rows(e));
    const ValueId mixed = ops::dot_general(p.b, block.p, block.v, {{3}, {1}, {0, 1}, {0, 2}});
    block.heads = p.transpose(mixed, {0, 2, 1, 3});
    return p.add(x, p.dot(block.heads, block.out, {2, 3}, {0, 1}));
  }

  ValueId backward(const Block& block, ValueId g) {
    Program& p = program;
    update(block.out, p.dot(block.heads, g, {0, 1}, {0, 1}));
    const ValueId g_heads = p.dot(g, block.out, {2}, {2});  // b t h e
    const ValueId g_p = ops::dot_general(p.b, g_heads, block.v, {{3}, {3}, {0, 2}, {0, 2}});
    const ValueId g_v = ops::dot_general(p.b, block.p, g_heads, {{2}, {1}, {0, 1}, {0, 2}});
    const ValueId g_s = p.mul(block.p, p.sub(g_p, rows(p.mul(g_p, block.p))));
    const ValueId g_q = ops::dot_general(p.b, g_s, block.k, {{3}, {1}, {0, 1}, {0, 2}});
    const ValueId g_k = ops::dot_general(p.b, g_s, block.q, {{2}, {1}, {0, 1}, {0, 2}});
    ValueId g_normal = ir::kNoValue;
    for (const auto& [w, g_bhte] :
         {std::pair{block.query, g_q}, std::pair{block.key, g_k}, std::pair{block.value, g_v}}) {
      const ValueId g_out = p.transpose(g_bhte, {0, 2, 1, 3});
      update(w, p.dot(block.normal, g_out, {0, 1}, {0, 1}));
      const ValueId part = p.dot(g_out, w, {2, 3}, {1, 2});
      g_normal = g_normal == ir::kNoValue ? part : p.add(g_normal, part);
    }
    update(block.scale, p.sum(p.mul(g_normal, block.x), {0, 1}));
    const ValueId g_x = p.mul(g_normal, block.wide_scale);
    return p.add(g, p.sub(g_x, p.scaled(rows(g_x), 1.0 / kWidth)));
  }

  std::vector<ValueId> weights_;
  std::vector<std::pair<ValueId, ValueId>> gradients_;
};

/// `all_gather 2 4096, reduce_scatter 1 128`: arrays and bytes per kind.
std::string summary(const Function& partitioned);

}  // namespace tessera::partition::testing
