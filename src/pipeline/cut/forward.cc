#include "pipeline/cut/forward.h"

#include <algorithm>
#include <map>

#include "ops/ops.h"
#include "pipeline/cut/costs.h"

namespace tessera::pipeline {

namespace {

/// Limit on the possible cuts, because all pairs of them are considered. Of many close ones, the
/// one that sends the fewest bytes is kept.
constexpr std::size_t kMostPlaces = 256;

}  // namespace

Forward::Forward(const Function& function, const CutOptions& options)
    : f_(function),
      options_(options),
      definition_(function.values.size(), kNone),
      varies_(function.values.size(), false),
      is_trained_(function.values.size(), false),
      leads_on_(function.values.size(), !options.is_differentiated),
      position_(function.equations.size(), kNone),
      last_use_(function.values.size(), kNone) {
  find_kinds();
  find_leading();
  find_positions();
  find_last_uses();
  find_places();
  thin_out();
}

void Forward::find_kinds() {
  for (std::size_t i = 0; i < f_.inputs.size(); ++i) {
    varies_[f_.inputs[i]] = options_.varies[i];
    is_trained_[f_.inputs[i]] = options_.is_trained[i];
  }
  for (std::size_t i = 0; i < f_.equations.size(); ++i) {
    const Equation& e = f_.equations[i];
    const auto any = [&](const std::vector<bool>& is_so) {
      return std::any_of(e.operands.begin(), e.operands.end(),
                         [&](ValueId id) { return is_so[id]; });
    };
    const bool varies = any(varies_);
    const bool is_trained = any(is_trained_);
    for (ValueId id : e.results) {
      definition_[id] = i;
      varies_[id] = varies;
      is_trained_[id] = is_trained && is_float(f_.type(id).dtype);
    }
  }
  for (const Equation& e : f_.equations) {
    const Passes both = passes_of(f_, e, [&] {
      std::vector<bool> is_active;
      for (ValueId id : e.operands) is_active.push_back(is_trained_[id]);
      return is_active;
    }());
    const bool is_once =
        std::none_of(e.results.begin(), e.results.end(), [&](ValueId id) { return varies_[id]; });
    passes_.push_back(is_once ? Passes{} : both);
    if (!options_.is_differentiated) passes_.back().backward = passes_.back().held = 0;
  }
}

void Forward::find_leading() {
  if (!options_.is_differentiated) return;
  leads_on_[f_.outputs[0]] = true;
  for (std::size_t i = f_.equations.size(); i-- > 0;) {
    const Equation& e = f_.equations[i];
    const bool leads =
        std::any_of(e.results.begin(), e.results.end(), [&](ValueId id) { return leads_on_[id]; });
    if (!leads) continue;
    for (ValueId id : e.operands) leads_on_[id] = true;
  }
}

/// Values that depend on no weight have no backward pass, and are computed where they are first
/// read.
void Forward::find_positions() {
  std::vector<std::size_t> first_use(f_.values.size(), kNone);
  for (std::size_t i = f_.equations.size(); i-- > 0;) {
    const Equation& e = f_.equations[i];
    std::size_t position = kNone;
    bool is_trained = false;
    for (ValueId id : e.results) {
      position = std::min(position, first_use[id]);
      is_trained = is_trained || is_trained_[id];
    }
    position_[i] = is_trained || position == kNone ? i : position;
    for (ValueId id : e.operands) first_use[id] = std::min(first_use[id], position_[i]);
  }
}

ValueId Forward::base_of(ValueId id) const {
  while (definition_[id] != kNone) {
    const Equation& e = f_.equations[definition_[id]];
    if (!is_view(e) || e.operands.empty() || shrinks(f_, e)) break;
    id = e.operands[0];
  }
  return id;
}

double Forward::bytes_of(ValueId id) const { return static_cast<double>(size_bytes(f_.type(id))); }

void Forward::find_last_uses() {
  for (std::size_t i = 0; i < f_.equations.size(); ++i) {
    for (ValueId id : f_.equations[i].operands) {
      std::size_t& last = last_use_[base_of(id)];
      last = last == kNone ? position_[i] : std::max(last, position_[i]);
    }
  }
}

void Forward::find_places() {
  const std::size_t count = f_.equations.size();
  if (count == 0) return;
  std::vector<double> sent(count + 1, 0);
  std::vector<int> num_led(count + 1, 0);
  for (ValueId id = 0; id < f_.values.size(); ++id) {
    if (definition_[id] == kNone || last_use_[id] == kNone || !varies_[id]) continue;
    const std::size_t first = position_[definition_[id]];
    const std::size_t last = last_use_[id];
    if (first >= last) continue;
    sent[first] += bytes_of(id);
    sent[last] -= bytes_of(id);
    const bool is_led = leads_on_[id] && (is_trained_[id] || !options_.is_differentiated);
    num_led[first] += is_led ? 1 : 0;
    num_led[last] -= is_led ? 1 : 0;
  }
  double bytes = 0;
  int led = 0;
  bool is_new = false;  // work was done since the last place
  for (std::size_t i = 0; i < count; ++i) {
    bytes += sent[i];
    led += num_led[i];
    const bool works = position_[i] == i && passes_[i].forward > 0;
    is_new = is_new || works;
    if (led == 0 || !is_new) continue;
    // Between two equations that take time, keep the cut that the fewest bytes cross.
    if (works || places_.empty()) {
      places_.push_back({i, bytes});
    } else if (bytes < places_.back().sent) {
      places_.back() = {i, bytes};
    }
  }
  places_.push_back({count - 1, 0});
}

void Forward::thin_out() {
  if (places_.size() <= kMostPlaces) return;
  std::vector<double> until;  // seconds, per equation
  double seconds = 0;
  for (const Passes& one : passes_) until.push_back(seconds += one.forward + one.backward);
  std::map<std::size_t, Place> kept;  // the best cut in each of equal shares of the work
  for (std::size_t i = 0; i + 1 < places_.size(); ++i) {
    const double share = until[places_[i].equation] / seconds;
    const auto bucket = static_cast<std::size_t>(share * (kMostPlaces - 1));
    const auto [best, is_first] = kept.emplace(bucket, places_[i]);
    if (!is_first && places_[i].sent < best->second.sent) best->second = places_[i];
  }
  const Place end = places_.back();
  places_.clear();
  for (const auto& [bucket, place] : kept) places_.push_back(place);
  places_.push_back(end);
}

Row Forward::row() const {
  Row row;
  row.pieces.resize(places_.size());
  for (std::size_t k = 0; k < places_.size(); ++k) row.pieces[k].sent = places_[k].sent;
  std::map<ValueId, std::size_t> weights;
  std::vector<bool> is_held(f_.values.size(), false);
  std::vector<std::size_t> order(f_.equations.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return position_[a] < position_[b]; });
  std::size_t k = 0;
  for (const std::size_t i : order) {
    while (position_[i] > places_[k].equation) ++k;
    add(f_.equations[i], passes_[i], row, row.pieces[k], weights, is_held);
  }
  return row;
}

void Forward::add(const Equation& equation, const Passes& passes, Row& row, Piece& piece,
                  std::map<ValueId, std::size_t>& weights, std::vector<bool>& is_held) const {
  if (!varies_[equation.results[0]]) return;
  piece.forward += passes.forward;
  piece.backward += passes.backward;
  piece.held += passes.held;
  for (ValueId id : equation.operands) {
    const ValueId base = base_of(id);
    if (varies_[base]) {
      const bool is_made = definition_[base] != kNone;
      const bool is_read_again =
          is_made && passes.backward > 0 && holds_operands(equation) && !is_held[base];
      if (!is_read_again) continue;
      is_held[base] = true;
      piece.held += bytes_of(base);
      continue;
    }
    const auto [weight, is_new] = weights.emplace(base, row.weight_bytes.size());
    if (is_new) row.weight_bytes.push_back(bytes_of(base));
    const bool is_there = std::find(piece.weights.begin(), piece.weights.end(), weight->second) !=
                          piece.weights.end();
    if (!is_there) piece.weights.push_back(weight->second);
  }
}

std::vector<ValueId> Forward::going_on(std::size_t equation) const {
  std::vector<bool> is_read(f_.values.size(), false);
  for (std::size_t i = equation + 1; i < f_.equations.size(); ++i) {
    for (ValueId id : f_.equations[i].operands) is_read[id] = true;
  }
  std::vector<ValueId> values;
  for (std::size_t i = 0; i <= equation; ++i) {
    if (position_[i] > equation) continue;
    for (ValueId id : f_.equations[i].results) {
      if (is_read[id] && varies_[id]) values.push_back(id);
    }
  }
  return values;
}

std::pair<const Equation*, double> Forward::longest_loop() const {
  const Equation* longest = nullptr;
  double most = 0;
  double total = 0;
  for (std::size_t i = 0; i < f_.equations.size(); ++i) {
    const double seconds = passes_[i].forward + passes_[i].backward;
    total += seconds;
    const Equation& e = f_.equations[i];
    if ((e.op != &ops::scan_op && e.op != &ops::while_op) || seconds <= most) continue;
    longest = &e;
    most = seconds;
  }
  return {longest, total > 0 ? most / total : 0};
}

}  // namespace tessera::pipeline
