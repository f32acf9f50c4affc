// Inserts the marks that cut a forward pass into stages.
#include <algorithm>
#include <fmt/format.h>

#include <tessera/error.h>

#include "ir/builder.h"
#include "ops/control/control.h"
#include "ops/ops.h"
#include "pipeline/cut/forward.h"

namespace tessera::pipeline {

namespace {

/// Loops are not cut. If one takes more than this many times the mean of a stage, the stages cannot
/// be balanced.
constexpr double kMostOfStage = 1.5;

void check_places(const Forward& forward, const CutOptions& options) {
  const auto [loop, share] = forward.longest_loop();
  const auto stages = static_cast<double>(options.num_stages);
  if (options.num_stages > 1 && loop != nullptr && share * stages > kMostOfStage) {
    throw UserError(
        {.what = "auto_stages: a loop does most of the work, and loops are not cut",
         .where = loop->span,
         .found = fmt::format("a {} with {:.0f} % of the work, for {} stages", *loop->op->name,
                              100 * share, options.num_stages),
         .wanted = fmt::format("loops of at most {:.0f} %", 100 * kMostOfStage / stages),
         .cure = "write the layers one after the other, or as several loops"});
  }
  const std::size_t count = forward.places().size();
  if (count >= static_cast<std::size_t>(options.num_stages)) return;
  throw UserError(
      {.what = "auto_stages: the function cannot be cut into this many stages",
       .where = options.where,
       .found =
           fmt::format("{} stages; the work can be cut into {} at most", options.num_stages, count),
       .wanted = "at least one equation for each stage, whose result the next stage reads",
       .cure = count == 1
                   ? std::string(
                         "move the layers out of the one nested function that does all the work")
                   : fmt::format("give the schedule num_stages = {} or fewer", count)});
}

Ends cut(const Forward& forward, const CutOptions& options) {
  check_places(forward, options);
  const Row row = forward.row();
  const BalanceOptions how{.tasks = options.tasks,
                           .num_stages = options.num_stages,
                           .memory_limit = options.memory_limit};
  Ends ends = balance(row, how);
  if (!ends.empty()) return ends;
  throw UserError(
      {.what = "auto_stages: no cut keeps every stage within the memory limit",
       .where = options.where,
       .found = fmt::format("memory_limit = {:.6g} bytes", options.memory_limit),
       .wanted = fmt::format("at least {:.0f} bytes, which the fullest stage of the best cut needs",
                             least_bytes(row, how)),
       .cure = "raise the limit, make microbatches smaller, or use more stages"});
}

/// Copies equations. Later readers of a value that crosses a cut read its mark.
class Marker {
 public:
  explicit Marker(Function function) : f_(std::move(function)), builder_(f_) {
    equations_.swap(f_.equations);
    for (ValueId id = 0; id < f_.values.size(); ++id) now_.push_back(id);
  }

  void copy_up_to(std::size_t last) {
    for (; next_ <= last; ++next_) {
      Equation equation = std::move(equations_[next_]);
      for (ValueId& id : equation.operands) id = now_[id];
      builder_.set_span(equation.span);
      f_.equations.push_back(std::move(equation));
    }
  }

  void mark(ValueId id, std::int64_t stage) {
    now_[id] = ops::stage_end(builder_, now_[id], stage);
  }

  Function finish() {
    for (ValueId& id : f_.outputs) id = now_[id];
    return std::move(f_);
  }

 private:
  Function f_;
  ir::Builder builder_;
  std::vector<Equation> equations_;
  std::vector<ValueId> now_;  // per value of the original function: its replacement
  std::size_t next_ = 0;
};

}  // namespace

Function with_marks(Function function, const CutOptions& options) {
  function = ir::without_dead_code(std::move(function));
  const Forward forward(function, options);
  const Ends ends = cut(forward, options);
  Marker marker(function);
  for (std::size_t stage = 0; stage + 1 < ends.size(); ++stage) {
    const std::size_t last = forward.places()[ends[stage] - 1].equation;
    marker.copy_up_to(last);
    for (ValueId id : forward.going_on(last)) marker.mark(id, static_cast<std::int64_t>(stage));
  }
  if (!function.equations.empty()) marker.copy_up_to(function.equations.size() - 1);
  const std::size_t num_ends = options.is_differentiated ? 1 : function.outputs.size();
  std::vector<ValueId> outputs(function.outputs.begin(),
                               function.outputs.begin() + static_cast<std::ptrdiff_t>(num_ends));
  std::sort(outputs.begin(), outputs.end());
  outputs.erase(std::unique(outputs.begin(), outputs.end()), outputs.end());
  for (ValueId id : outputs) marker.mark(id, options.num_stages - 1);
  return marker.finish();
}

}  // namespace tessera::pipeline
