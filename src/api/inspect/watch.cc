#include "api/inspect/watch.h"

#include <algorithm>
#include <fmt/format.h>

#include <tessera/error.h>
#include <tessera/ops.h>

#include "api/call/eager.h"
#include "batch/batch.h"
#include "ir/effects.h"
#include "run/transport/processes.h"

namespace tessera::detail {

namespace {

/// What is known of a trace.
struct Watched {
  const trace::Trace* trace;
  std::vector<Look> inputs;
  std::vector<VmapLevel> levels;  // around the trace, the outermost first
};

/// The innermost trace last.
std::vector<Watched>& watched_traces() {
  static thread_local std::vector<Watched> traces;
  return traces;
}

bool varies_at(const Seen& seen, std::size_t level) {
  return level < seen.varies.size() && seen.varies[level];
}

Array captured_array(const std::shared_ptr<const void>& captured) {
  return Array(
      std::const_pointer_cast<ArrayNode>(std::static_pointer_cast<const ArrayNode>(captured)));
}

/// The inputs that the outputs depend on.
std::vector<bool> used_inputs(const ir::Function& function) {
  std::vector<bool> is_used(function.values.size(), false);
  for (const ir::ValueId id : function.outputs) is_used[id] = true;
  for (const ir::Equation& equation : function.equations) {
    for (const ir::ValueId id : equation.operands) is_used[id] = true;
  }
  std::vector<bool> used;
  for (const ir::ValueId id : function.inputs) used.push_back(is_used[id]);
  return used;
}

/// Computes one value of a trace.
class Sight {
 public:
  Sight(const trace::Trace& trace, const Watched* watched) : trace_(trace), watched_(watched) {}

  std::optional<Seen> value(ir::ValueId id) {
    ir::Function function = trace_.function();
    function.outputs = {id};
    function = ir::without_dead_code(ir::without_effects(std::move(function)));
    if (std::ranges::any_of(function.equations, ir::gives_back)) return std::nullopt;
    if (!take_inputs(function)) return std::nullopt;
    Seen result;
    result.varies.assign(num_levels(), false);
    for (std::size_t level = num_levels(); level-- > 0;) {
      std::vector<bool> is_batched;
      for (const Seen& input : inputs_) is_batched.push_back(varies_at(input, level));
      const VmapLevel& vmap = watched_->levels[level];
      batch::Batched batched =
          batch::batch(function, is_batched, vmap.size, {}, {.name = vmap.axis});
      result.varies[level] = batched.is_output_batched[0];
      function = std::move(batched.function);
    }
    std::vector<Array> arrays;
    for (Seen& input : inputs_) arrays.push_back(std::move(input.value));
    result.value = run_function(std::move(function), arrays, trace::call_span({}))[0];
    return result;
  }

 private:
  std::size_t num_levels() const { return watched_ == nullptr ? 0 : watched_->levels.size(); }

  /// Keeps the inputs that are used, and looks at them; false if one is not known.
  bool take_inputs(ir::Function& function) {
    const std::vector<bool> is_used = used_inputs(function);
    const std::size_t num_own = function.inputs.size() - trace_.captured().size();
    std::vector<ir::ValueId> kept;
    for (std::size_t i = 0; i < is_used.size(); ++i) {
      if (!is_used[i]) continue;
      std::optional<Seen> input = i < num_own ? own_input(i) : captured(i - num_own);
      if (!input) return false;
      kept.push_back(function.inputs[i]);
      inputs_.push_back(std::move(*input));
    }
    function.inputs = std::move(kept);
    return true;
  }

  std::optional<Seen> own_input(std::size_t i) const {
    if (watched_ == nullptr || i >= watched_->inputs.size()) return std::nullopt;
    return watched_->inputs[i]();
  }

  std::optional<Seen> captured(std::size_t i) const {
    return seen(captured_array(trace_.captured()[i]));
  }

  const trace::Trace& trace_;
  const Watched* watched_;
  std::vector<Seen> inputs_;
};

}  // namespace

Watching::Watching(const trace::Trace& trace, std::vector<Look> inputs,
                   std::optional<VmapLevel> level) {
  Watched watched{.trace = &trace, .inputs = std::move(inputs), .levels = {}};
  if (!watched_traces().empty()) watched.levels = watched_traces().back().levels;
  if (level) watched.levels.push_back(*std::move(level));
  watched_traces().push_back(std::move(watched));
}

Watching::~Watching() { watched_traces().pop_back(); }

std::optional<Seen> seen(const Array& array) {
  if (array.is_deleted()) return std::nullopt;
  if (array.is_concrete()) return Seen{array, {}};
  if (!array.is_traced() || run::transport() != nullptr) return std::nullopt;
  const trace::Trace& trace = *array.node()->trace;
  if (!trace::is_active(trace)) return std::nullopt;
  const std::vector<Watched>& all = watched_traces();
  const auto found = std::find_if(all.rbegin(), all.rend(),
                                  [&](const Watched& watched) { return watched.trace == &trace; });
  try {
    return Sight(trace, found == all.rend() ? nullptr : &*found).value(array.node()->value);
  } catch (const Error&) {
    // An op without a batching rule, for example: the function may still be correct.
    return std::nullopt;
  }
}

std::vector<Look> looks_at(const std::vector<Array>& arrays) {
  std::vector<Look> looks;
  for (const Array& array : arrays) looks.emplace_back([array] { return seen(array); });
  return looks;
}

Look rows_of(Array array) {
  const std::size_t level = watched_traces().empty() ? 0 : watched_traces().back().levels.size();
  return [array = std::move(array), level] {
    std::optional<Seen> whole = seen(array);
    if (whole) {
      whole->varies.resize(level, false);
      whole->varies.push_back(true);
    }
    return whole;
  };
}

Look slice_of(Array array, std::int64_t index) {
  return [array = std::move(array), index]() -> std::optional<Seen> {
    std::optional<Seen> whole = seen(array);
    if (!whole) return std::nullopt;
    const auto axis = std::count(whole->varies.begin(), whole->varies.end(), true);
    if (index < 0 || index >= whole->value.dim(axis)) return std::nullopt;  // a loop without rounds
    const trace::Outside outside;
    return Seen{squeeze(slice(whole->value, axis, index, index + 1), axis), whole->varies};
  };
}

std::string traced_text(const Array& array) {
  const std::optional<Seen> found = seen(array);
  if (!found) return "(traced)";
  std::string text = "(traced) " + elements_text(found->value);
  const std::int64_t own = std::max<std::int64_t>(1, array.size());
  if (std::count(found->varies.begin(), found->varies.end(), true) == 0) return text;
  return fmt::format("{} for {} elements of vmap", text, found->value.size() / own);
}

}  // namespace tessera::detail
