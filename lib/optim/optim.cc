#include <cstdio>

#include <tessera/error.h>
#include <tessera/ops.h>
#include <tessera/optim.h>

namespace tessera::optim {

namespace {

std::string text(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof(buffer), "%.17g", value);
  return buffer;
}

class Adam final : public Optimizer::Rule {
 public:
  explicit Adam(const AdamWOptions& options) : o_(options) {}

  std::vector<std::string> slot_names() const override { return {"mu", "nu"}; }
  Array update(const Array& parameter, const Array& gradient, const Array& count,
               std::vector<Array>& slots) const override {
    Array& mu = slots[0];
    Array& nu = slots[1];
    mu = gradient * (1.0 - o_.b1) + mu * o_.b1;
    nu = square(gradient) * (1.0 - o_.b2) + nu * o_.b2;
    const Array mu_hat = mu / (1.0 - pow(o_.b1, count));
    const Array nu_hat = nu / (1.0 - pow(o_.b2, count));
    Array step = mu_hat / (sqrt(nu_hat) + o_.epsilon);
    if (o_.weight_decay != 0.0) step = step + parameter * o_.weight_decay;
    return parameter + step * -o_.learning_rate;
  }
  std::string key() const override {
    return "adam " + text(o_.learning_rate) + " " + text(o_.b1) + " " + text(o_.b2) + " " +
           text(o_.epsilon) + " " + text(o_.weight_decay);
  }

 private:
  AdamWOptions o_;
};

class Sgd final : public Optimizer::Rule {
 public:
  explicit Sgd(double learning_rate) : learning_rate_(learning_rate) {}
  std::vector<std::string> slot_names() const override { return {}; }
  Array update(const Array& parameter, const Array& gradient, const Array& /*count*/,
               std::vector<Array>& /*slots*/) const override {
    return parameter + gradient * -learning_rate_;
  }
  std::string key() const override { return "sgd " + text(learning_rate_); }

 private:
  double learning_rate_;
};

}  // namespace

TESSERA_DEFINE_COPYABLE(State);
TESSERA_DEFINE_COPYABLE(Optimizer);
Optimizer::Optimizer(std::shared_ptr<const Rule> rule) : rule_(std::move(rule)) {}
State::State() = default;

State Optimizer::init(const std::vector<Param>& parameters) const {
  State state;
  state.count = zeros({}, DType::i32);
  for (const std::string& name : rule_->slot_names()) {
    std::vector<Param>& slot = state.slots[name];
    for (const Param& parameter : parameters) {
      slot.push_back(parameter.with_value(zeros_like(parameter)));
    }
  }
  return state;
}

namespace {

void check_structure(const std::vector<Array>& parameters, const std::vector<Array>& gradients,
                     const State& state, const std::source_location& where) {
  const std::string count = "parameters: " + std::to_string(parameters.size());
  if (parameters.size() != gradients.size()) {
    throw UserError({.what = "Optimizer: gradients and parameters have different structures",
                     .where = where,
                     .found = count + " and gradients: " + std::to_string(gradients.size()),
                     .wanted = "one gradient per parameter",
                     .cure = "pass the gradients of value_and_grad with respect to the model"});
  }
  for (const auto& [name, slot] : state.slots) {
    if (slot.size() == parameters.size()) continue;
    throw UserError({.what = "Optimizer: the state is for another model",
                     .where = where,
                     .found = count + " and arrays in " + name + ": " + std::to_string(slot.size()),
                     .wanted = "one array per parameter",
                     .cure = "make the state from the same model: tx.init(tree_params(model))"});
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].type() == gradients[i].type()) continue;
    const bool is_named = !state.slots.empty();
    throw UserError(
        {.what = "Optimizer: a gradient does not fit its parameter",
         .where = where,
         .found = to_string(gradients[i].type()) + " for parameter " +
                  (is_named ? state.slots.begin()->second[i].path() : std::to_string(i)),
         .wanted = to_string(parameters[i].type()),
         .cure = "pass the gradients of value_and_grad with respect to the model"});
  }
}

}  // namespace

std::vector<Array> Optimizer::update(const std::vector<Array>& parameters,
                                     const std::vector<Array>& gradients, State& state,
                                     std::source_location where) const {
  const CallScope scope(where);
  check_structure(parameters, gradients, state, where);
  state.count = state.count + 1;
  const Array count = astype(state.count, DType::f32);
  const std::vector<std::string> names = rule_->slot_names();
  std::vector<Array> updated;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    std::vector<Array> slots;
    for (const std::string& name : names) slots.push_back(state.slots.at(name).at(i));
    updated.push_back(rule_->update(parameters[i], gradients[i], count, slots));
    for (std::size_t s = 0; s < names.size(); ++s) {
      Param& slot = state.slots.at(names[s])[i];
      slot = slot.with_value(slots[s]);
    }
  }
  return updated;
}

Optimizer adam(const AdamOptions& o) {
  return adamw({.learning_rate = o.learning_rate,
                .b1 = o.b1,
                .b2 = o.b2,
                .epsilon = o.epsilon,
                .weight_decay = 0.0});
}

Optimizer adamw(const AdamWOptions& options) { return Optimizer(std::make_shared<Adam>(options)); }

Optimizer sgd(const SgdOptions& options) {
  return Optimizer(std::make_shared<Sgd>(options.learning_rate));
}

}  // namespace tessera::optim
