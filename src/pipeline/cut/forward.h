// A forward pass as a sequence of pieces.
#pragma once

#include <map>

#include "pipeline/cut/balance.h"
#include "pipeline/cut/costs.h"
#include "pipeline/pipeline.h"

namespace tessera::pipeline {

using ir::Equation;
using ir::Function;
using ir::ValueId;

/// A possible cut of a forward pass: after an equation.
struct Place {
  std::size_t equation;
  double sent;  // bytes of the values that cross it
};

/// The possible cuts of a function, the values that cross them, and the costs of its equations. The
/// function must outlive this object.
class Forward {
 public:
  Forward(const Function& function, const CutOptions& options);

  /// The cuts that at least one differentiated value crosses, in program order; the last one is the
  /// end of the function.
  const std::vector<Place>& places() const { return places_; }
  /// The pieces between the places.
  Row row() const;
  /// The values that cross a cut after the equation, in program order.
  std::vector<ValueId> going_on(std::size_t equation) const;
  /// The loop that takes the most time in both passes, and its share of the total (0 to 1); nullptr
  /// if there are no loops.
  std::pair<const Equation*, double> longest_loop() const;

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};

  void find_kinds();
  void find_leading();
  void find_positions();
  void find_last_uses();
  void find_places();
  void thin_out();
  void add(const Equation& equation, const Passes& passes, Row& row, Piece& piece,
           std::map<ValueId, std::size_t>& weights, std::vector<bool>& is_held) const;
  ValueId base_of(ValueId id) const;
  double bytes_of(ValueId id) const;

  const Function& f_;
  const CutOptions& options_;
  std::vector<std::size_t> definition_;  // per value: its equation, or kNone
  std::vector<bool> varies_;             // per value: differs between microbatches
  std::vector<bool> is_trained_;         // per value: depends on a weight
  std::vector<bool> leads_on_;           // per value: the loss depends on it
  std::vector<std::size_t> position_;    // per equation: at which equation it is computed
  std::vector<std::size_t> last_use_;    // per value: position of its last reader, or kNone
  std::vector<Passes> passes_;           // per equation; 0 if it is done once for all microbatches
  std::vector<Place> places_;
};

}  // namespace tessera::pipeline
