// Splits a function; implemented in split.cc, attention.cc, inner_sum.cc, roll.cc, selection.cc and
// windows.cc.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "ir/bodies.h"
#include "ops/attention/attention.h"
#include "partition/candidates.h"
#include "partition/flatten.h"
#include "partition/moves.h"
#include "partition/reshard/plan_reshard.h"
#include "partition/split/price.h"
#include "partition/split/split.h"
#include "partition/sums/defer.h"

namespace tessera::partition {

using ir::Equation;
using ir::Function;
using ir::ValueId;

inline constexpr std::size_t kNoEquation = ~std::size_t{0};
/// The weight of moving an operand with other users. Its sharding suits these users, so if it
/// moves, it often has to move back.
inline constexpr double kSharedWeight = 4;

/// One of several plans for a program.
struct Attempt {
  double single_weight = 1;                         // of moving an operand without other users
  bool is_contested = false;                        // whether kSharedWeight would give another plan
  std::vector<std::function<void()>> reports = {};  // to the user, of the plan that is chosen
};

/// How a value gets windows: collectives first bring it to shards, and one move leads from there to
/// windows.
struct WayToWindows {
  Sharding stop;
  Sharding to;
  double stop_cost;
  double halo_cost;
};

/// Splits one function. Nested functions have their own splitters.
class Splitter {
 public:
  Splitter(const Function& function, const FlatFunction& flat, const Propagated& propagated,
           ReshardPlanner& planner, Attempt& attempt, std::size_t block)
      : function_(function),
        flat_(flat),
        propagated_(propagated),
        block_(flat.blocks[block]),
        planner_(planner),
        attempt_(attempt),
        out_(ir::empty_like(function)),
        versions_(function.values.size()),
        definition_(function.values.size(), kNoEquation),
        users_(ir::count_uses(function)),
        is_accumulator_(function.values.size(), false) {
    // Most values have one sharding; this leaves room for collectives and constants.
    out_.values.reserve(function.values.size() * 3 / 2);
    out_.equations.reserve(function.equations.size() * 3 / 2);
    const auto first = propagated.is_late.begin() + static_cast<std::ptrdiff_t>(block_.first_value);
    is_late_.assign(first, first + static_cast<std::ptrdiff_t>(function.values.size()));
    for (std::size_t i = 0; i < function.equations.size(); ++i) {
      for (ValueId id : function.equations[i].results) definition_[id] = i;
    }
  }

  Function run(const Boundary& boundary) {
    for (std::size_t i = 0; i < function_.inputs.size(); ++i) {
      const ValueId input = add_value(function_.inputs[i], boundary.inputs[i]);
      versions_[function_.inputs[i]] = {input};
      out_.inputs.push_back(input);
    }
    for (const auto& [input, output] : boundary.sums) {
      is_accumulator_[function_.inputs[input]] = true;
    }
    for (std::size_t i = 0; i < function_.equations.size(); ++i) split_equation(i);
    std::vector<std::optional<Sharding>> outputs = boundary.outputs;
    for (const auto& [input, output] : boundary.sums) {
      outputs[output] = out_.sharding(out_.inputs[input]);
    }
    for (std::size_t i = 0; i < function_.outputs.size(); ++i) set_output(i, outputs[i]);
    put_early(out_, early_);
    return std::move(out_);
  }
  bool is_sum(std::size_t input, std::size_t output) const {
    return partition::is_sum(function_, users_, input, output);
  }
  const Sharding& wanted(ValueId id) const { return propagated_.wanted[block_.first_value + id]; }
  bool is_constant(ValueId source) const {
    return propagated_.is_constant[block_.first_value + source];
  }

 private:
  ValueId add_value(ValueId source, Sharding sharding) {
    return out_.add_value({.type = function_.type(source), .sharding = std::move(sharding)});
  }
  const EquationFactors& factors_at(std::size_t index) const {
    return *propagated_.factors[block_.first_equation + index];
  }

  /// Whether the value is a sum over devices that has not been resolved yet.
  bool is_pending(ValueId source) const {
    const std::vector<ValueId>& versions = versions_[source];
    return versions.size() == 1 && !out_.sharding(versions[0]).partial.empty();
  }
  /// The sharding of the value, or the one that it should have once it is needed.
  const Sharding& layout_of(ValueId source) const {
    return is_pending(source) ? wanted(source) : out_.sharding(versions_[source][0]);
  }
  bool is_zero(ValueId source) const {
    return is_constant(source) && partition::is_zero(function_, definition_, source);
  }

  void split_equation(std::size_t index);
  void split_barrier(const Equation& equation);
  void inspect(const Equation& equation);
  void split_control(std::size_t index);
  ControlEdges body_edges(const Equation& equation, const ir::BodyFlow& flow,
                          const Splitter& body) const;
  ControlEdges branch_edges(const Equation& equation, const ir::BodyFlow& flow,
                            const Splitter& branch) const;
  void find_sums(const Equation& equation, const ir::BodyFlow& flow, const Splitter& body,
                 Boundary& inside) const;
  void set_output(std::size_t index, const std::optional<Sharding>& asked);
  Assignment choose(std::size_t index);
  std::size_t cheapest(std::size_t index, const std::vector<Assignment>& candidates);
  double price_of(std::size_t index, const Assignment& assignment);
  std::vector<TensorView> views(std::size_t index) const;
  std::optional<Deferral> find_deferral(std::size_t index);
  bool is_worth_it(std::size_t index, const Deferral& deferral, const Assignment& chosen);
  void apply_deferral(std::size_t index, const Deferral& deferral);
  void settle(std::size_t index);
  double moved_bytes(std::size_t index, const Assignment& assignment,
                     const Deferral* deferral = nullptr);
  void apply(std::size_t index, const Assignment& assignment);
  bool has_elements_everywhere(ValueId source) const;
  struct Roll;
  std::optional<Roll> find_roll(std::size_t index) const;
  bool roll_in_shards(std::size_t index);
  struct Selection;
  std::optional<Selection> find_selection(std::size_t index) const;
  double price_of(std::size_t index, const Selection& selection);
  bool select_in_shards(std::size_t index, const Assignment& chosen);
  std::vector<ValueId> select_locally(const Equation& equation, const Selection& selection,
                                      ValueId shards);
  void select_finally(const Equation& equation, const Selection& selection,
                      const std::vector<ValueId>& best);
  struct InnerSum;
  std::optional<InnerSum> find_inner_sum(std::size_t index) const;
  std::optional<Assignment> split_inside(std::size_t index, const InnerSum& sum,
                                         Assignment raw) const;
  void set_assignment(std::size_t index, Assignment assignment, InnerSum& sum);
  void set_stop(const Sharding& wanted, InnerSum& sum);
  double price_of(std::size_t index, const InnerSum& sum);
  bool sum_by_grains(std::size_t index, const Assignment& chosen);
  ValueId emit_grains(const Equation& equation, const InnerSum& sum, std::vector<ValueId> operands);
  ValueId add_grains(const InnerSum& sum, ValueId grains, const Span& span);
  struct KeySplit;
  std::vector<KeySplit> find_key_splits(std::size_t index) const;
  KeySplit key_split(const Equation& equation, const ops::AttentionSizes& sizes,
                     const ops::AttentionParts& parts) const;
  void set_stop(const Sharding& wanted, KeySplit& split);
  double held_bytes(const Type& type, const Sharding& sharding) const;
  double held_copies(const Equation& equation, const EquationFactors& factors,
                     const Assignment& assignment);
  double price_of(std::size_t index, const KeySplit& split);
  std::optional<KeySplit> cheapest_key_split(std::size_t index, double least);
  bool attend_in_parts(std::size_t index, const Assignment& chosen);
  ValueId attend_in_steps(const KeySplit& split, const std::vector<ValueId>& operands);
  ValueId merge_parts(const KeySplit& split, const std::vector<ValueId>& operands);
  void finish_attention(const Equation& equation, const KeySplit& split, ValueId partial);
  std::vector<ValueId> emit(const Equation& equation, std::vector<ValueId> operands,
                            const std::vector<Sharding>& shardings);

  double cost_to(ValueId source, const Sharding& target);
  double cost_of_move(ValueId source, const Sharding& target);
  double cost_of_rebuild(ValueId source, const Sharding& target);
  Assignment assignment_for(std::size_t index, const Sharding& target) const;
  double cost_of_operand(ValueId source, const Sharding& needed);
  WayToWindows way_to_windows(ValueId source, const Sharding& needed);
  ValueId in_windows(ValueId source, const Sharding& needed, const Span& span);
  struct PaddedWindows;
  std::optional<PaddedWindows> padded_windows(ValueId source, const Sharding& needed) const;
  std::optional<ValueId> pad_in_windows(ValueId source, const Sharding& needed, const Span& span);
  ValueId nearest_version(ValueId source, const Sharding& target);
  ValueId in_sharding(ValueId source, const Sharding& target, const Span& span);
  ValueId add_move(MoveKind kind, ValueId value, const Sharding& to, const Span& span);
  ValueId follow(ValueId value, const ReshardPlan& plan, bool is_order_free,
                 std::string_view reduction, const Span& span);
  ValueId rebuild(ValueId source, const Sharding& target);
  ValueId resolve(ValueId source, const Sharding& target);

  const Function& function_;
  const FlatFunction& flat_;
  const Propagated& propagated_;
  const FlatFunction::Block block_;
  ReshardPlanner& planner_;
  Attempt& attempt_;
  Function out_;
  std::vector<std::vector<ValueId>> versions_;        // per source value: its versions in out_
  std::map<ValueId, std::vector<ValueId>> windowed_;  // the same for versions with windows
  std::vector<std::size_t> definition_;               // per source value: its equation
  std::vector<bool> is_late_;
  std::vector<int> users_;            // per source value: equations, and outputs
  std::vector<bool> is_accumulator_;  // per source value: a carry that may become a sum
  std::vector<std::size_t> early_;    // equations of out_ to move to just after what they resolve
};

}  // namespace tessera::partition
