#include "tests/fuzz/pipelines.h"

#include <memory>

#include "ir/builder.h"
#include "ir/text.h"
#include "ops/control/mpmd.h"

namespace tessera::testing {

namespace {

using ir::Function;
using ir::ValueId;
using Ids = std::vector<ValueId>;

const char* const kMesh = "stage=1,fsdp=2";

std::string replaced(std::string text, const std::string& word, std::int64_t by) {
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at)) {
    text.replace(at, word.size(), std::to_string(by));
  }
  return text;
}

ops::FunctionPtr body_of(std::string text, const Pipeline& pipeline) {
  text = replaced(replaced(std::move(text), "ROWS", pipeline.rows), "WIDTH", pipeline.width);
  Function body = ir::parse("function body[mesh=\"" + std::string(kMesh) + "\", grains=8]" + text);
  return std::make_shared<const Function>(std::move(body));
}

/// The square of x w.
const char* const kForward = R"((%0: f32[ROWS,WIDTH]<{fsdp},{}>, %1: f32[WIDTH,WIDTH]<{fsdp},{}>) {
  %2: f32[WIDTH,WIDTH]<{},{}> = all_gather %1
  %3: f32[ROWS,WIDTH]<{fsdp},{}> = dot_general[lhs_batch=[], lhs_contract=[1], rhs_batch=[],
      rhs_contract=[0]] %0, %2
  %4: f32[ROWS,WIDTH]<{fsdp},{}> = mul %3, %3
  return %4
})";

/// Takes x, w, the gradient of the result and the accumulated gradient of w. Returns the new
/// accumulated gradient, and the gradient for the stage before.
const char* const kBackward = R"((%0: f32[ROWS,WIDTH]<{fsdp},{}>, %1: f32[WIDTH,WIDTH]<{fsdp},{}>,
    %2: f32[ROWS,WIDTH]<{fsdp},{}>, %3: f32[WIDTH,WIDTH]<{fsdp},{}>) {
  %4: f32[WIDTH,WIDTH]<{},{}+{fsdp}> = dot_general[lhs_batch=[], lhs_contract=[0], rhs_batch=[],
      rhs_contract=[0]] %0, %2
  %5: f32[WIDTH,WIDTH]<{fsdp},{}> = reduce_scatter[reduction="sum"] %4
  %6: f32[WIDTH,WIDTH]<{fsdp},{}> = add %3, %5
  %7: f32[WIDTH,WIDTH]<{},{}> = all_gather %1
  %8: f32[ROWS,WIDTH]<{fsdp},{}> = dot_general[lhs_batch=[], lhs_contract=[1], rhs_batch=[],
      rhs_contract=[1]] %2, %7
  return %6, %8
})";

const char* const kUpdate = R"((%0: f32[WIDTH,WIDTH]<{fsdp},{}>, %1: f32[WIDTH,WIDTH]<{fsdp},{}>) {
  %2: f32[WIDTH,WIDTH]<{fsdp},{}> = sub %0, %1
  return %2
})";

class Writer {
 public:
  explicit Writer(const Pipeline& pipeline) : p_(pipeline), f_(ir::empty_like(*forward_)), b_(f_) {
    f_.name = "main";
  }

  Function write() {
    const Sharding rows = forward_->sharding(forward_->inputs[0]);
    for (int m = 0; m < p_.num_microbatches; ++m)
      given_.push_back(add_input({p_.rows, p_.width}, rows));
    for (int s = 0; s < p_.num_stages; ++s)
      weights_.push_back(add_input({p_.width, p_.width}, rows));
    for (int s = 0; s < p_.num_stages; ++s) {
      sums_.push_back(b_.emit(
          "constant",
          {{"dtype", DType::f32}, {"shape", ir::Ints{p_.width, p_.width}}, {"value", 0.0}}, {}));
      f_.values[sums_.back()].sharding = rows;
    }
    inputs_of_.resize(at(p_.num_microbatches));
    for (int m = 0; m < p_.num_microbatches; ++m) {
      forward(m);
      if (p_.is_one_by_one) backward(m);
    }
    for (int m = 0; m < p_.num_microbatches && !p_.is_one_by_one; ++m) backward(m);
    for (int s = 0; s < p_.num_stages; ++s) {
      const ops::TaskParts parts{
          .name = "after_loop_" + std::to_string(s), .group = group(s), .shares = {0}};
      const Ids updated = ops::task(b_, parts, update_, {weights_[at(s)], sums_[at(s)]});
      f_.outputs.push_back(updated[0]);
    }
    return std::move(f_);
  }

 private:
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }
  int group(int stage) const { return stage % p_.num_groups; }

  ValueId add_input(Shape shape, const Sharding& sharding) {
    const ValueId id = b_.add_input({DType::f32, std::move(shape)});
    f_.values[id].sharding = sharding;
    return id;
  }

  ValueId moved(ValueId x, int from, int to) {
    return group(from) == group(to) ? x : ops::transfer(b_, x, group(from), group(to));
  }

  ops::TaskParts parts(const std::string& kind, int stage, int microbatch, ir::Ints shares) const {
    return {.name = kind + "_" + std::to_string(stage) + "_" + std::to_string(microbatch),
            .group = group(stage),
            .stage = stage,
            .microbatch = microbatch,
            .shares = std::move(shares)};
  }

  void forward(int m) {
    ValueId x = given_[at(m)];
    for (int s = 0; s < p_.num_stages; ++s) {
      if (s > 0) x = moved(x, s - 1, s);
      inputs_of_[at(m)].push_back(x);
      x = ops::task(b_, parts("fwd", s, m, {-1}), forward_, {x, weights_[at(s)]})[0];
    }
    last_.push_back(x);
  }

  void backward(int m) {
    ValueId gradient = last_[at(m)];
    for (int s = p_.num_stages; s-- > 0;) {
      if (s + 1 < p_.num_stages) gradient = moved(gradient, s + 1, s);
      const Ids operands = {inputs_of_[at(m)][at(s)], weights_[at(s)], gradient, sums_[at(s)]};
      const Ids results = ops::task(b_, parts("bwd", s, m, {3, -1}), backward_, operands);
      sums_[at(s)] = results[0];
      gradient = results[1];
    }
  }

  const Pipeline p_;
  const ops::FunctionPtr forward_ = body_of(kForward, p_);
  const ops::FunctionPtr backward_ = body_of(kBackward, p_);
  const ops::FunctionPtr update_ = body_of(kUpdate, p_);
  Function f_;
  ir::Builder b_;
  Ids given_, weights_, sums_, last_;
  std::vector<Ids> inputs_of_;  // per microbatch and stage
};

}  // namespace

Function pipeline_step(const Pipeline& pipeline) { return Writer(pipeline).write(); }

Function without_tasks(const Function& function) {
  Function result = ir::empty_like(function);
  ir::Builder b(result);
  Ids renamed(function.values.size(), ir::kNoValue);
  for (ValueId id : function.inputs) {
    renamed[id] = result.add_value(function.values[id]);
    result.inputs.push_back(renamed[id]);
  }
  for (const ir::Equation& equation : function.equations) {
    Ids operands;
    for (ValueId id : equation.operands) operands.push_back(renamed[id]);
    Ids results;
    if (ops::is_transfer(equation)) {
      results = operands;
    } else if (ops::is_task(equation)) {
      results = b.inline_function(equation.attributes.body("body"), operands);
    } else {
      results = b.emit_all(*equation.op, equation.attributes, operands);
      for (std::size_t i = 0; i < results.size(); ++i) {
        result.values[results[i]].sharding = function.values[equation.results[i]].sharding;
      }
    }
    for (std::size_t i = 0; i < results.size(); ++i) renamed[equation.results[i]] = results[i];
  }
  for (ValueId id : function.outputs) result.outputs.push_back(renamed[id]);
  return result;
}

}  // namespace tessera::testing
