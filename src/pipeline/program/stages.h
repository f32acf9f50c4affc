// Which task of a pipeline each equation of a microbatch belongs to.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/ir.h"
#include "ops/control/control.h"
#include "pipeline/walk.h"

namespace tessera::pipeline {

using ir::Equation;
using ir::Function;
using ir::kNoValue;
using ir::ValueId;

/// A stage's share of the work on a microbatch.
struct Item {
  Work work = Work::fwd;
  std::int64_t stage = 0;
  friend auto operator<=>(const Item&, const Item&) = default;
};

/// The items of a task; a `bwd` task has two.
std::vector<Item> items_of(const Task& task);

/// Where an equation is computed.
struct Home {
  enum class Kind : std::uint8_t {
    item,      // by one item
    users,     // by each item that needs it: constants and views
    hoisted,   // once before the loop: equal for all microbatches
    boundary,  // a mark: its result is its operand
  };
  Kind kind = Kind::users;
  Item item = {};
};

/// The body of the loop, which computes one microbatch, cut into items.
struct Stages {
  Function body;  // each output is the result of its own equation, in an item
  ops::ScanParts parts;
  std::int64_t num_stages;
  std::vector<Home> homes;               // per equation
  std::vector<std::size_t> definition;   // per value: its equation, or kNone
  std::vector<std::size_t> input;        // per value: its number among the inputs, or kNone
  std::vector<std::size_t> output;       // per value: its number among the outputs, or kNone
  std::vector<std::vector<Item>> users;  // per value: the items that read it, sorted
  static constexpr std::size_t kNone = ~std::size_t{0};

  /// Inputs of the body are constants (equal for all microbatches), carries (sums) and slices.
  bool is_const(ValueId id) const { return input[id] < parts.num_consts; }
  bool is_carry(ValueId id) const { return !is_const(id) && input[id] < parts.first_scanned(); }
  /// Outputs of the body are sums, and rows of stacked results.
  bool is_sum(ValueId id) const { return output[id] < parts.num_carry; }
  bool is_row(ValueId id) const { return output[id] != kNone && !is_sum(id); }
  /// The operand of a mark; other values are returned unchanged.
  ValueId behind_marks(ValueId id) const;
  const Home* home_of(ValueId id) const;  // nullptr for inputs
};

/// Moves the weight gradients of the stages in `is_split` out of their backward items: all
/// equations that lead to one sum only, except cheap ones whose results are smaller than their
/// operands.
void split_backward(Stages& stages, const std::vector<bool>& is_split);
/// Fills in `users`. Throws InternalError if an item reads a sum that another item writes.
void find_users(Stages& stages);

/// Estimated costs of each stage: seconds of its tasks, with the backward pass in two halves, and
/// bytes that a device holds from a forward task on.
ScheduleCosts estimated_costs(Stages stages);

struct StagesOptions {
  std::int64_t num_stages;
  bool is_differentiated = false;  // the program also has the derivative of the loop
  Span where = {};                 // of the loop, for errors
};

/// `scan` is the loop over microbatches. Throws UserError if a stage has no mark, or if a mark of a
/// forward pass depends on one of a backward pass.
Stages cut_stages(const Equation& scan, const StagesOptions& options);

}  // namespace tessera::pipeline
