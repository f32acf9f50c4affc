#include "compile/reference/finite.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include <tessera/error.h>

#include "compile/reference/gather.h"
#include "compile/reference/interpret.h"
#include "compile/reference/on_host.h"
#include "ops/record.h"

namespace tessera::compile {

namespace {

using ir::Equation;
using ir::Function;
using ir::ValueId;
using ops::HostArray;

struct Counts {
  std::int64_t nan = 0;
  std::int64_t infinite = 0;

  bool has(bool wants_nan) const { return (wants_nan ? nan : infinite) > 0; }
  bool is_finite() const { return nan == 0 && infinite == 0; }
};

Counts counts_of(DType dtype, std::span<const std::byte> bytes) {
  Counts counts;
  if (!is_float(dtype)) return counts;
  ops::dispatch(dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(T)) {
      T x;
      std::memcpy(&x, bytes.data() + at, sizeof(T));
      const auto value = static_cast<double>(x);
      counts.nan += static_cast<std::int64_t>(std::isnan(value));
      counts.infinite += static_cast<std::int64_t>(std::isinf(value));
    }
  });
  return counts;
}

/// Notes which values of each function are not finite while it is interpreted.
class Finder final : public Watcher {
 public:
  explicit Finder(DotUnit dot_unit) : dot_unit_(dot_unit) {}

  void begin(const Function& function, const std::vector<HostArray>& inputs) override {
    Frame& frame = frames_.emplace_back(function);
    for (std::size_t i = 0; i < inputs.size(); ++i) note(frame, function.inputs[i], inputs[i]);
  }

  std::vector<HostArray> evaluate(const Function& function, const Equation& equation,
                                  const std::vector<const HostArray*>& operands) override {
    if (!is_worth_host(function, equation)) return {};
    return evaluate_on_host(function, equation, operands, dot_unit_);
  }

  void visit(const Equation& equation, const std::vector<HostArray>& results) override {
    Frame& frame = frames_.back();
    const auto index = static_cast<std::size_t>(&equation - frame.function->equations.data());
    for (std::size_t i = 0; i < results.size(); ++i) {
      note(frame, equation.results[i], results[i]);
      frame.made_by[equation.results[i]] = index;
    }
    if (inner_) frame.inner[index] = std::move(inner_);
    inner_.reset();
  }

  void end() override {
    // In a loop, the first round with such values counts.
    std::optional<NotFinite> found = inner_ ? std::move(inner_) : origin();
    frames_.pop_back();
    (frames_.empty() ? result_ : inner_) = std::move(found);
  }

  std::optional<NotFinite> result() { return std::move(result_); }

 private:
  static constexpr std::size_t kInput = ~std::size_t{0};

  /// A function that is being interpreted.
  struct Frame {
    explicit Frame(const Function& f)
        : function(&f),
          counts(f.values.size()),
          made_by(f.values.size(), kInput),
          inner(f.equations.size()) {}
    const Function* function;
    std::vector<Counts> counts;                   // per value
    std::vector<std::size_t> made_by;             // per value: an equation
    std::vector<std::optional<NotFinite>> inner;  // per equation: found in its nested functions
  };

  static void note(Frame& frame, ValueId id, const HostArray& array) {
    frame.counts[id] = counts_of(array.type().dtype, array.bytes());
  }

  /// Where the NaNs of the outputs come from; the infinities, if there are no NaNs.
  std::optional<NotFinite> origin() const {
    const Frame& frame = frames_.back();
    for (const bool wants_nan : {true, false}) {
      std::vector<ValueId> bad;
      for (const ValueId id : frame.function->outputs) {
        if (frame.counts[id].has(wants_nan)) bad.push_back(id);
      }
      if (!bad.empty()) return origin(frame, std::move(bad), wants_nan);
    }
    return std::nullopt;
  }

  /// Follows operands that have such elements too. Of several origins, the first one to be computed
  /// counts.
  std::optional<NotFinite> origin(const Frame& frame, std::vector<ValueId> waiting,
                                  bool wants_nan) const {
    std::vector<bool> is_seen(frame.counts.size(), false);
    ValueId first = ir::kNoValue;
    ValueId input = ir::kNoValue;
    while (!waiting.empty()) {
      const ValueId id = waiting.back();
      waiting.pop_back();
      if (is_seen[id]) continue;
      is_seen[id] = true;
      if (frame.made_by[id] == kInput) {
        input = id;
        continue;
      }
      const std::size_t before = waiting.size();
      for (const ValueId operand : frame.function->equations[frame.made_by[id]].operands) {
        if (frame.counts[operand].has(wants_nan)) waiting.push_back(operand);
      }
      const bool is_origin = waiting.size() == before;
      const bool is_earlier = first == ir::kNoValue || frame.made_by[id] < frame.made_by[first];
      if (is_origin && is_earlier) first = id;
    }
    if (first != ir::kNoValue) return described(frame, first);
    return frames_.size() > 1 ? std::nullopt : std::optional(of_input(frame, input));
  }

  static NotFinite described(const Frame& frame, ValueId id) {
    const std::size_t index = frame.made_by[id];
    if (frame.inner[index]) return *frame.inner[index];
    const Equation& equation = frame.function->equations[index];
    const bool has_finite_operands =
        std::all_of(equation.operands.begin(), equation.operands.end(),
                    [&](ValueId operand) { return frame.counts[operand].is_finite(); });
    return {.op = *equation.op->name,
            .type = frame.function->type(id),
            .span = equation.span,
            .num_nan = frame.counts[id].nan,
            .num_infinite = frame.counts[id].infinite,
            .has_finite_operands = has_finite_operands};
  }

  static NotFinite of_input(const Frame& frame, ValueId id) {
    const std::vector<ValueId>& inputs = frame.function->inputs;
    const auto number = std::find(inputs.begin(), inputs.end(), id) - inputs.begin();
    return {.op = {},
            .input = static_cast<std::size_t>(number),
            .type = frame.function->type(id),
            .span = {},
            .num_nan = frame.counts[id].nan,
            .num_infinite = frame.counts[id].infinite};
  }

  DotUnit dot_unit_;
  std::vector<Frame> frames_;       // the innermost function last
  std::optional<NotFinite> inner_;  // found in functions of the current equation
  std::optional<NotFinite> result_ = {};
};

}  // namespace

std::optional<NotFinite> find_not_finite(const Function& function, std::vector<HostArray> inputs,
                                         DotUnit dot_unit) {
  Finder finder(dot_unit);
  interpret(function, std::move(inputs), dot_unit, &finder);
  return finder.result();
}

FiniteRunnable::FiniteRunnable(std::shared_ptr<const run::Runnable> program, Function traced,
                               std::vector<run::PlacementPtr> inputs,
                               std::vector<run::PlacementPtr> outputs, DotUnit dot_unit,
                               Names names)
    : program_(std::move(program)),
      traced_(std::move(traced)),
      inputs_(std::move(inputs)),
      outputs_(std::move(outputs)),
      dot_unit_(dot_unit),
      names_(std::move(names)) {}

std::vector<run::Tiles> FiniteRunnable::execute(std::vector<run::Tiles>& inputs,
                                                const std::function<void()>& on_begin) const {
  // An engine overwrites only tiles that have a single owner.
  const std::vector<run::Tiles> kept = inputs;
  std::vector<run::Tiles> outputs = program_->execute(inputs, [] {});
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    for (const run::BufferPtr& tile : outputs[i]) {
      const std::span<const std::byte> bytes(tile->data(), static_cast<std::size_t>(tile->size()));
      if (counts_of(outputs_[i]->type.dtype, bytes).is_finite()) continue;
      inputs = kept;
      report(kept, i);
    }
  }
  on_begin();
  return outputs;
}

namespace {

std::string elements_text(const NotFinite& found) {
  std::string text;
  if (found.num_nan > 0) text = fmt::format("{} NaN", found.num_nan);
  if (found.num_infinite > 0) {
    text += fmt::format("{}{} infinite", text.empty() ? "" : " and ", found.num_infinite);
  }
  return fmt::format("{} of {} elements", text, num_elements(found.type.shape));
}

}  // namespace

void FiniteRunnable::report(const std::vector<run::Tiles>& inputs, std::size_t output) const {
  const std::optional<NotFinite> origin =
      find_not_finite(traced_, gather_all(inputs_, inputs), dot_unit_);
  const std::string result = names_.outputs[output].empty() ? "the result" : names_.outputs[output];
  Mistake mistake{.what = names_.program + ": a result is not finite",
                  .where = {},
                  .found = result,
                  .wanted = "finite numbers, as check_finite requires",
                  .cure = {}};
  if (!origin) {
    mistake.found += "; the reference engine computes finite numbers from the same arguments";
    mistake.cure = "compare with set_engine(\"reference\")";
  } else if (origin->op.empty()) {
    mistake.found += fmt::format("; argument {} {} has {}", names_.inputs[origin->input],
                                 to_string(origin->type), elements_text(*origin));
    mistake.cure = "pass finite arguments";
  } else {
    mistake.where = origin->span;
    mistake.found +=
        fmt::format("; first in {} {} with {}, computed from {}", origin->op,
                    to_string(origin->type), elements_text(*origin),
                    origin->has_finite_operands ? "finite operands" : "operands with infinities");
    mistake.cure = "keep the operands of this op, or of its derivative, within the valid range";
  }
  throw UserError(std::move(mistake));
}

}  // namespace tessera::compile
