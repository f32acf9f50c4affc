// Training steps of the models of examples/, as cases.
#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <tuple>

#include <tessera/data.h>
#include <tessera/optim.h>
#include <tessera/tessera.h>

#include "ir/text.h"
#include "lm/model.h"
#include "mlp/model.h"
#include "pipeline/model.h"
#include "tests/fuzz/random.h"
#include "tests/stablehlo/cases.h"
#include "vit/model.h"

namespace tessera::testing {

namespace {

/// Adam would magnify the rounding errors of gradients that should be zero, such as those of the
/// biases of keys, and the rounding errors of gradients in bf16.
const optim::Optimizer kPlain = optim::sgd({.learning_rate = 0.5});

template <typename T>
void copy_elements(const Array& from, ops::HostArray& to) {
  const std::vector<T> values = from.to_vector<T>();
  std::copy(values.begin(), values.end(), to.data<T>().begin());
}

ops::HostArray host_array(const Array& array) {
  ops::HostArray result({array.dtype(), array.shape()});
  ops::dispatch(array.dtype(), [&](auto zero) {
    using T = decltype(zero);
    copy_elements<T>(array, result);
  });
  return result;
}

/// The step of a jitted function on these arguments.
template <typename Step, typename... Args>
HloCase step_case(const std::string& name, Step& step, const Args&... args) {
  const auto lowered = step.lower(args...);
  const std::string text = lowered.partitioned_ir();
  const ir::Function partitioned = ir::parse(text);
  Arrays inputs;
  for (const Array& leaf : tree_leaves(std::tuple<Args...>(args...))) {
    inputs.push_back(host_array(leaf));
  }
  const Arrays outputs = run_whole(without_mesh(ir::parse(lowered.ir())), inputs);
  const bool is_half =
      text.find("bf16") != std::string::npos || text.find("f16[") != std::string::npos;
  HloCase c = mesh_case(name, partitioned, inputs, outputs,
                        is_half ? Tolerance::half_step : Tolerance::step);
  c.note = {};
  return c;
}

/// `make` makes the model from a key, `loss` computes (loss, gradients) from it, `batch` and a
/// key for dropout.
template <typename Make, typename Loss, typename Batch>
HloCase training_case(const std::string& name, const Mesh& mesh, const Make& make, const Loss& loss,
                      Batch batch, const std::string& layout, const optim::Optimizer& tx) {
  using Model = std::invoke_result_t<Make, Key>;
  const use_mesh scope(mesh);
  const logical_axis_rules rules({{"batch", "data"}, {"hidden", "model"}});
  const auto init = [&](Key key) { return TrainState<Model>(make(key), tx); };
  Shardings shardings;
  if (!mesh.axes().empty()) {
    const auto shapes = eval_shape(init, Key(42));
    const std::string& axis = mesh.axes()[0].name;
    shardings = layout == "fsdp" ? fsdp_shardings(mesh, shapes, axis)
                                 : logical_to_mesh(get_partition_spec(shapes));
    batch = device_put(batch, Shardings(NamedSharding(mesh, P{axis.c_str()})));
  }
  const auto state = jit(init, {.out_shardings = shardings})(Key(42));
  auto step = jit(
      [&](TrainState<Model> old, Batch inputs, Key key) {
        auto [value, grads] = loss(old.params, inputs, random::fold_in(key, old.step));
        return std::tuple(old.apply_gradients(grads), value);
      },
      {.donate_argnums = {0}});
  HloCase c = step_case(name, step, state, batch, Key(7));
  c.is_donated.assign(tree_leaves(state).size(), true);
  return c;
}

HloCase lm_case(const std::string& name, const Mesh& mesh, std::int64_t count, DType dtype) {
  const lm::Config config{.vocab = 50,
                          .seq = 12,
                          .d_model = 32,
                          .heads = 4,
                          .layers = 2,
                          .d_ff = 48,
                          .is_causal = true,
                          .dtype = dtype};
  const data::Tokens tokens = data::random_tokens(1234, 64, config.seq, 50);
  return training_case(
      name, mesh, [&](Key key) { return lm::LM(nn::Scope(key), config); },
      [](const lm::LM& params, const Array& ids, const Key& /*key*/) {
        return value_and_grad(
            [&](const lm::LM& model) { return lm::next_token_loss(model(ids), ids); })(params);
      },
      tokens.batch(0, count), "fsdp",
      dtype == DType::f32 ? optim::adamw({.learning_rate = 3e-4}) : kPlain);
}

using Perceptron = mlp::Stack<mlp::DotReluDot>;

HloCase mlp_case(const std::string& name, const Mesh& mesh) {
  const mlp::Config config{.depth = 48, .layers = 3, .use_scan = true};
  data::RandomState random(0);
  return training_case(
      name, mesh, [&](Key key) { return Perceptron(nn::Scope(key), config); },
      [](const Perceptron& params, const Array& x, const Key& /*key*/) {
        return value_and_grad([&](const Perceptron& model) { return sum(model(x)); })(params);
      },
      random.standard_normal({8, 48}), "annotated", optim::adam({.learning_rate = 1e-3}));
}

HloCase pipeline_case(const std::string& name, const Mesh& mesh) {
  const pipeline::Config config{
      .seq = 6, .d_model = 32, .heads = 2, .layers = 2, .microbatches = 2};
  data::RandomState random(0);
  const Array x = random.standard_normal({16, 6, 32});
  const Array y = random.standard_normal({16, 6, 32});
  return training_case(
      name, mesh, [&](Key key) { return pipeline::Transformer(nn::Scope(key), config); },
      [](const pipeline::Transformer& params, const std::tuple<Array, Array>& batch,
         const Key& /*key*/) {
        return pipeline::accumulate(params, std::get<0>(batch), std::get<1>(batch), 2);
      },
      std::tuple(x, y), "fsdp", kPlain);
}

HloCase vit_case(const std::string& name, const Mesh& mesh) {
  const vit::Config config{
      .embed = 24, .mlp_dim = 32, .heads = 2, .layers = 2, .patch = 4, .image = 8};
  data::RandomState random(0);
  const Array images = random.standard_normal({16, 8, 8, 3});
  const Array labels = random.randint(0, config.classes, {16});
  return training_case(
      name, mesh, [&](Key key) { return vit::VisionTransformer(nn::Scope::nnx(key), config); },
      [](const vit::VisionTransformer& params, const std::tuple<Array, Array>& batch,
         const Key& key) {
        const nn::Mode mode = nn::Mode::train(key);
        return value_and_grad([&](const vit::VisionTransformer& model) {
          return vit::cross_entropy(model(std::get<0>(batch), mode), std::get<1>(batch));
        })(params);
      },
      std::tuple(images, labels), "fsdp", kPlain);
}

/// The output of attention and its derivatives, for sizes and masks of which cuDNN has kernels.
HloCase attention_case(fuzz::Random& random, DType dtype) {
  using Sizes = std::vector<std::int64_t>;
  AttentionMask mask{.is_causal = random.chance(70)};
  if (mask.is_causal && random.chance(50)) mask.before = random.choose(Sizes{1, 3, 40});
  if (random.chance(50)) mask.scale = 0.3;
  const std::int64_t queries = random.choose(Sizes{2, 17, 64, 130});
  const std::int64_t keys = mask.is_causal ? queries : random.choose(Sizes{2, 33, 128});
  const std::int64_t batch = random.between(1, 3);
  const std::int64_t heads = random.between(1, 4);
  const std::int64_t depth = random.choose(Sizes{8, 40, 64, 128});
  data::RandomState numbers(static_cast<std::uint32_t>(random.between(0, 1 << 30)));
  const auto array = [&](std::int64_t length) {
    return astype(numbers.standard_normal({batch, length, heads, depth}), dtype);
  };
  using Operands = std::tuple<Array, Array, Array>;
  auto step = jit([mask](Operands qkv, Array d_output) {
    const auto output = [mask](const Operands& x) {
      return attention(std::get<0>(x), std::get<1>(x), std::get<2>(x), mask);
    };
    return vjp(output, d_output)(qkv);
  });
  return step_case(
      fmt::format("attention in {}, {} x {} x {} x {}, {} keys, causal {}, before {}", name(dtype),
                  batch, queries, heads, depth, keys, mask.is_causal, mask.before),
      step, Operands(array(queries), array(keys), array(keys)), array(queries));
}

}  // namespace

std::vector<HloCase> model_cases() {
  std::vector<HloCase> cases;
  const std::vector<std::vector<std::int64_t>> shapes = {{}, {8}, {4, 2}, {3}};
  for (const std::vector<std::int64_t>& shape : shapes) {
    const auto mesh = [&](std::vector<std::string> names) {
      std::vector<MeshAxis> axes;
      for (std::size_t i = 0; i < shape.size(); ++i) axes.push_back({names[i], shape[i]});
      return shape.empty() ? Mesh() : make_mesh(axes);
    };
    const std::string on = " step on " + (shape.empty() ? "one device" : to_string(Shape(shape)));
    cases.push_back(lm_case("lm" + on, mesh({"data", "model"}), 8, DType::f32));
    cases.push_back(lm_case("lm in bf16" + on, mesh({"data", "model"}), 5, DType::bf16));
    cases.push_back(pipeline_case("pipeline" + on, mesh({"fsdp", "model"})));
    cases.push_back(vit_case("vit" + on, mesh({"data", "model"})));
    if (shape.size() != 1) cases.push_back(mlp_case("mlp" + on, mesh({"data", "model"})));
  }
  fuzz::Random random(1);
  for (int i = 0; i < 8; ++i) {
    for (const DType dtype : {DType::bf16, DType::f16}) {
      cases.push_back(attention_case(random, dtype));
    }
  }
  return cases;
}

}  // namespace tessera::testing
