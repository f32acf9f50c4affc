#include <algorithm>
#include <set>

#include <tessera/error.h>

#include "optim/parts.h"

namespace tessera::optim {

namespace {

using detail::Part;
using Parameters = std::vector<Param>;

/// Where a part finds its arrays for a parameter in the state.
struct Place {
  std::string name;
  std::size_t index;
};

/// What a part does with each parameter.
struct Work {
  std::vector<bool> chosen;
  std::vector<std::vector<Place>> places;  // where the slots of each parameter are
};

Type slot_type(const Param& parameter, const Optimizer::Slot& slot) {
  Type type = parameter.type();
  if (is_half(type.dtype)) type.dtype = DType::f32;
  std::vector<std::int64_t> dropped = slot.dropped;
  std::sort(dropped.rbegin(), dropped.rend());
  for (const std::int64_t axis : dropped) type.shape.erase(type.shape.begin() + axis);
  return type;
}

/// The initial value with the path of the parameter and the spec of the remaining dimensions.
Param make_slot(const Param& parameter, const Optimizer::Slot& slot) {
  const Type type = slot_type(parameter, slot);
  Array value = full(type.shape, slot.initial, type.dtype);
  if (slot.dropped.empty()) return parameter.with_value(std::move(value));
  if (!parameter.is_annotated()) return {std::move(value), parameter.path()};
  std::vector<SpecEntry> entries;
  for (std::size_t axis = 0; axis < parameter.spec().entries().size(); ++axis) {
    const bool is_dropped = std::count(slot.dropped.begin(), slot.dropped.end(), axis) > 0;
    if (!is_dropped) entries.push_back(parameter.spec().entries()[axis]);
  }
  return {std::move(value), parameter.path(), PartitionSpec(std::move(entries)),
          parameter.is_logical() ? AxisNames::logical : AxisNames::mesh};
}

void check_matrices(const Parameters& parameters, const std::vector<bool>& chosen,
                    const std::source_location& where) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!chosen[i] || parameters[i].rank() >= 2) continue;
    throw UserError(
        {.what = "muon: a chosen parameter is not a matrix",
         .where = where,
         .found = to_string(parameters[i].type()) + " for parameter " + parameters[i].path(),
         .wanted = "at least two dimensions",
         .cure = "choose fewer: .matrices = Mask::matching({\"*/kernel\"})"});
  }
  if (std::count(chosen.begin(), chosen.end(), true) > 0) return;
  throw UserError({.what = "muon: no parameter is chosen",
                   .where = where,
                   .found = "parameters: " + std::to_string(chosen.size()) + ", matrices: 0",
                   .wanted = "a model with matrices",
                   .cure = "choose arrays that are stacks of matrices: .matrices = "
                           "Mask::matching({\"*/kernel\"}), or use adamw"});
}

std::vector<bool> chosen_by(const Part& part, const Parameters& parameters,
                            const std::source_location& where) {
  std::vector<bool> chosen;
  for (const Param& parameter : parameters) chosen.push_back(parameter.is_trained());
  for (const Mask& mask : part.masks) {
    const std::vector<bool> more = mask(parameters, where);
    for (std::size_t i = 0; i < chosen.size(); ++i) chosen[i] = chosen[i] && more[i];
  }
  if (part.needs_matrices) check_matrices(parameters, chosen, where);
  return chosen;
}

/// Assigns each slot of a chain its position in the state. A second slot of the same name is
/// renamed.
class Planner {
 public:
  explicit Planner(const Parameters& parameters) : parameters_(parameters) {}

  /// Calls `add(name, parameter, slot)` for every slot, in the order of positions.
  template <typename Add>
  Work plan(const Part& part, const std::source_location& where, const Add& add) {
    Work work{.chosen = chosen_by(part, parameters_, where), .places = {}};
    work.places.resize(parameters_.size());
    std::vector<std::vector<Optimizer::Slot>> slots(parameters_.size());
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (work.chosen[i]) slots[i] = part.rule->slots(parameters_[i]);
    }
    const std::string suffix = free_suffix(slots);
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      for (const Optimizer::Slot& slot : slots[i]) {
        const std::string name = slot.name + suffix;
        taken_.emplace(name, i);
        work.places[i].push_back({name, sizes_[name]++});
        add(name, parameters_[i], slot);
      }
    }
    return work;
  }

 private:
  std::string free_suffix(const std::vector<std::vector<Optimizer::Slot>>& slots) const {
    std::string suffix;
    for (int number = 2; is_taken(slots, suffix); ++number) suffix = "_" + std::to_string(number);
    return suffix;
  }
  bool is_taken(const std::vector<std::vector<Optimizer::Slot>>& slots,
                const std::string& suffix) const {
    for (std::size_t i = 0; i < slots.size(); ++i) {
      for (const Optimizer::Slot& slot : slots[i]) {
        if (taken_.contains({slot.name + suffix, i})) return true;
      }
    }
    return false;
  }

  const Parameters& parameters_;
  std::set<std::pair<std::string, std::size_t>> taken_;  // name, parameter
  std::map<std::string, std::size_t> sizes_;
};

[[noreturn]] void other_state(const std::string& found, const std::string& wanted,
                              const std::source_location& where) {
  throw UserError(
      {.what = "Optimizer: the state is for another model or optimiser",
       .where = where,
       .found = found,
       .wanted = wanted,
       .cure = "make the state from the same model and optimiser: tx.init(tree_params(model))"});
}

void check_gradients(const Parameters& parameters, const std::vector<Array>& gradients,
                     const std::source_location& where) {
  if (parameters.size() != gradients.size()) {
    throw UserError({.what = "Optimizer: gradients and parameters have different structures",
                     .where = where,
                     .found = "parameters: " + std::to_string(parameters.size()) +
                              " and gradients: " + std::to_string(gradients.size()),
                     .wanted = "one gradient per parameter",
                     .cure = "pass the gradients of value_and_grad with respect to the model"});
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i].is_trained()) continue;
    if (!is_float(parameters[i].dtype())) {
      throw UserError(
          {.what = "Optimizer: a parameter is not an array of floats",
           .where = where,
           .found = to_string(parameters[i].type()) + " for parameter " + parameters[i].path(),
           .wanted = "an array of floats",
           .cure = "make it an nn::Buffer, which optimisers leave alone"});
    }
    if (parameters[i].type() == gradients[i].type()) continue;
    throw UserError(
        {.what = "Optimizer: a gradient does not match its parameter",
         .where = where,
         .found = to_string(gradients[i].type()) + " for parameter " + parameters[i].path(),
         .wanted = to_string(parameters[i].type()),
         .cure = "pass the gradients of value_and_grad with respect to the model"});
  }
}

/// The scalars of an update, each computed once, when first used.
class Counts {
 public:
  explicit Counts(const Array& done, const Array& next) : done_(done) {
    counts_.emplace(1, astype(next, DType::f32));
  }
  /// The number of this step among those that take part, from 1: f32[].
  const Array& count(std::int64_t every) {
    return find(counts_, every, [&] { return astype(done(every) + 1, DType::f32); });
  }
  /// The number of steps that took part before this one: i32[].
  const Array& done(std::int64_t every) {
    return find(dones_, every, [&] { return every == 1 ? done_ : div(done_, every); });
  }
  /// Whether this step takes part, bool[].
  const Array& is_last(std::int64_t every) {
    return find(lasts_, every, [&] { return equal(rem(done_, every), every - 1); });
  }

 private:
  template <typename Make>
  static const Array& find(std::map<std::int64_t, Array>& arrays, std::int64_t every,
                           const Make& make) {
    const auto found = arrays.find(every);
    return found != arrays.end() ? found->second : arrays.emplace(every, make()).first->second;
  }

  Array done_;
  std::map<std::int64_t, Array> counts_, dones_, lasts_;
};

/// A scalar of a rule in the dtype of the update that it changes.
Array in_dtype(const Array& x, DType dtype) {
  return is_float(x.dtype()) && x.dtype() != dtype ? astype(x, dtype) : x;
}

/// One update of all parameters.
class Update {
 public:
  Update(const std::vector<Part>& parts, const Parameters& parameters, State& state,
         const std::source_location& where)
      : parts_(parts), given_(parameters), state_(state) {
    plan(where);
    const Array done = state.count;
    state.count = done + 1;
    counts_.emplace(done, state.count);
    for (const Param& parameter : parameters) parameters_.push_back(wide(parameter));
  }

  std::vector<Array> run(const std::vector<Array>& gradients) {
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const bool is_narrow = is_half(gradients[i].dtype());
      updates_.push_back(is_narrow ? astype(gradients[i], DType::f32) : gradients[i]);
    }
    std::size_t first = 0;
    do {
      const std::size_t end = group_end(first);
      run_group(first, end);
      first = end;
    } while (first < parts_.size());
    return updates_;
  }

 private:
  void plan(const std::source_location& where) {
    Planner planner(given_);
    std::map<std::string, std::size_t> sizes;
    for (const Part& part : parts_) {
      works_.push_back(planner.plan(
          part, where,
          [&](const std::string& name, const Param& parameter, const Optimizer::Slot& slot) {
            check_slot(name, sizes[name]++, slot_type(parameter, slot), parameter, where);
          }));
    }
    for (const auto& [name, slot] : state_.slots) {
      if (slot.size() == sizes[name]) continue;
      other_state("arrays in " + name + ": " + std::to_string(slot.size()),
                  std::to_string(sizes[name]) + " arrays", where);
    }
  }

  void check_slot(const std::string& name, std::size_t index, const Type& type,
                  const Param& parameter, const std::source_location& where) const {
    const auto found = state_.slots.find(name);
    if (found == state_.slots.end() || index >= found->second.size()) {
      const std::size_t count = found == state_.slots.end() ? 0 : found->second.size();
      other_state("parameters: " + std::to_string(given_.size()) + " and arrays in " + name + ": " +
                      std::to_string(count),
                  name + " of parameter " + parameter.path(), where);
    }
    const Type& is = found->second[index].type();
    if (is == type) return;
    other_state(to_string(is) + " in " + name + " for parameter " + parameter.path(),
                to_string(type), where);
  }

  static Param wide(const Param& parameter) {
    if (!is_half(parameter.dtype())) return parameter;
    return parameter.with_value(astype(parameter, DType::f32));
  }

  /// Parts that can be applied to one parameter in sequence, before the next parameter.
  std::size_t group_end(std::size_t first) const {
    std::size_t end = std::min(first + 1, parts_.size());
    while (end < parts_.size() && !parts_[end].rule->needs_all()) ++end;
    return end;
  }

  std::vector<Array> common(std::size_t part) {
    const Optimizer::Rule& rule = *parts_[part].rule;
    std::vector<Array> updates;
    for (std::size_t i = 0; rule.needs_all() && i < updates_.size(); ++i) {
      if (works_[part].chosen[i]) updates.push_back(updates_[i]);
    }
    return rule.common(counts_->done(parts_[part].every), updates);
  }

  void run_group(std::size_t first, std::size_t end) {
    std::vector<std::vector<Array>> commons;
    for (std::size_t part = first; part < end; ++part) commons.push_back(common(part));
    for (std::size_t i = 0; i < updates_.size(); ++i) {
      for (std::size_t part = first; part < end; ++part) {
        if (works_[part].chosen[i]) run_part(part, i, commons[part - first]);
      }
      if (end == parts_.size()) apply(i);
    }
  }

  void run_part(std::size_t part, std::size_t i, const std::vector<Array>& common) {
    const std::int64_t every = parts_[part].every;
    const DType dtype = updates_[i].dtype();
    std::vector<Array> scalars;
    for (const Array& x : common) scalars.push_back(in_dtype(x, dtype));
    std::vector<Array> slots;
    for (const Place& place : works_[part].places[i]) {
      slots.push_back(state_.slots.at(place.name)[place.index]);
    }
    updates_[i] = parts_[part].rule->update({.parameter = parameters_[i],
                                             .count = in_dtype(counts_->count(every), dtype),
                                             .common = scalars,
                                             .slots = slots},
                                            updates_[i]);
    for (std::size_t s = 0; s < slots.size(); ++s) {
      const Place& place = works_[part].places[i][s];
      Param& slot = state_.slots.at(place.name)[place.index];
      slot =
          slot.with_value(every == 1 ? slots[s] : where(counts_->is_last(every), slots[s], slot));
    }
  }

  void apply(std::size_t i) {
    if (!given_[i].is_trained()) {
      updates_[i] = given_[i];
      return;
    }
    updates_[i] = parameters_[i] + updates_[i];
    if (is_half(given_[i].dtype())) updates_[i] = astype(updates_[i], given_[i].dtype());
  }

  const std::vector<Part>& parts_;
  const Parameters& given_;
  State& state_;
  std::vector<Work> works_;  // per part
  std::optional<Counts> counts_;
  Parameters parameters_;  // f32
  std::vector<Array> updates_;
};

std::string key_of(const std::vector<Part>& parts) {
  std::string key;
  for (const Part& part : parts) {
    key += "[" + part.rule->key() + "]";
    for (const Mask& mask : part.masks) key += "(" + mask.key() + ")";
    if (part.every > 1) key += " every " + std::to_string(part.every);
  }
  return key;
}

}  // namespace

TESSERA_DEFINE_COPYABLE(State);
TESSERA_DEFINE_COPYABLE(Optimizer);
State::State() = default;

Optimizer::Optimizer(std::shared_ptr<const Rule> rule)
    : Optimizer(std::vector<Part>{{.rule = std::move(rule)}}) {}
Optimizer::Optimizer(std::vector<Part> parts)
    : parts_(std::make_shared<const std::vector<Part>>(std::move(parts))), key_(key_of(*parts_)) {}

State Optimizer::init(const std::vector<Param>& parameters, std::source_location where) const {
  State state;
  state.count = zeros({}, DType::i32);
  Planner planner(parameters);
  for (const Part& part : *parts_) {
    planner.plan(part, where,
                 [&](const std::string& name, const Param& parameter, const Slot& slot) {
                   state.slots[name].push_back(make_slot(parameter, slot));
                 });
  }
  return state;
}

std::vector<Array> Optimizer::update(const std::vector<Param>& parameters,
                                     const std::vector<Array>& gradients, State& state,
                                     std::source_location where) const {
  const CallScope scope(where);
  check_gradients(parameters, gradients, where);
  return Update(*parts_, parameters, state, where).run(gradients);
}

}  // namespace tessera::optim
