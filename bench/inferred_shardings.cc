// Prints the shardings that jit infers without out_shardings, for the programs of bench/peers that
// take --shardings: one JSON object per line with the leaves of the result and the partitioned
// program.
#include <cstdio>
#include <nlohmann/json.hpp>

#include <tessera/optim.h>

#include "lm/model.h"
#include "mlp/model.h"

namespace {

using namespace tessera;
using nlohmann::json;

void print(const std::string& name, const LoweredProgram& program) {
  json results = json::array();
  for (const LeafPlacement& leaf : program.results()) {
    results.push_back({{"path", leaf.path}, {"spec", to_string(leaf.sharding.spec)}});
  }
  const json object = {{"program", name}, {"results", results}, {"ir", program.partitioned_ir()}};
  std::printf("%s\n", object.dump().c_str());
}

void print_mlp(const std::string& form) {
  const Mesh mesh = make_mesh({{"data", 2}, {"model", 4}});
  const use_mesh scope(mesh);
  const mlp::Config config{.use_scan = form == "scan"};
  auto init = [&](Key key) {
    return TrainState(mlp::MLP(nn::Scope(key), config), optim::adam({.learning_rate = 1e-3}));
  };
  using State = decltype(init(Key(0)));
  const auto state = jit(init, {.out_shardings = from_annotations(mesh)})(Key(0));
  const Array x = device_put(ones({8, config.depth}), P{"data", none});
  const auto step = jit([](State old, Array input) {
    auto [loss, grads] =
        value_and_grad([&](const mlp::MLP& model) { return sum(model(input)); })(old.params);
    return std::tuple(old.apply_gradients(grads), loss);
  });
  const auto apply = jit([](const mlp::MLP& model, Array input) { return model(input); });
  print("mlp init, " + form, jit(init).lower(Key(0)));
  print("mlp step, " + form, step.lower(state, x));
  print("mlp apply, " + form, apply.lower(state.params, x));
}

void print_lm(const std::string& params) {
  const Mesh mesh = make_mesh({{"data", 8}});
  const use_mesh scope(mesh);
  const lm::Config config;
  auto init = [&](Key key) {
    return TrainState(lm::LM(nn::Scope(key), config), optim::adamw({.learning_rate = 3e-4}));
  };
  using State = decltype(init(Key(0)));
  const auto shapes = eval_shape(init, Key(42));
  const Shardings layout =
      params == "fsdp" ? fsdp_shardings(mesh, shapes) : replicated(mesh, shapes);
  const auto state = jit(init, {.out_shardings = layout})(Key(42));
  const auto step = jit(
      [](State old, Array ids) {
        auto [loss, grads] = value_and_grad(
            [&](const lm::LM& model) { return lm::next_token_loss(model(ids), ids); })(old.params);
        return std::tuple(old.apply_gradients(grads), loss);
      },
      {.donate_argnums = {0}});
  const Array ids = device_put(zeros({32, config.seq}, DType::i32), P{"data"});
  print("lm step, " + params, step.lower(state, ids));
}

}  // namespace

int main() {
  for (const char* form : {"scan", "loop"}) print_mlp(form);
  for (const char* params : {"replicated", "fsdp"}) print_lm(params);
}
