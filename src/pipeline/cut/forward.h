// A forward pass as a row of pieces.
#pragma once

#include <map>

#include "pipeline/cut/balance.h"
#include "pipeline/cut/costs.h"
#include "pipeline/pipeline.h"

namespace tessera::pipeline {

using ir::Equation;
using ir::Function;
using ir::ValueId;

/// A place where a forward pass can be cut: behind an equation.
struct Place {
  std::size_t equation;
  double sent;  // bytes of what goes on there
};

/// Which of its values go on where, and what its equations take. The function must outlive it.
class Forward {
 public:
  Forward(const Function& function, const CutOptions& options);

  /// Where some value that is differentiated goes on, in order; the last one is the end.
  const std::vector<Place>& places() const { return places_; }
  /// The pieces between the places.
  Row row() const;
  /// The values that go on behind an equation, in the order in which they are made.
  std::vector<ValueId> going_on(std::size_t equation) const;
  /// The loop that takes most of all passes, and its share; nullptr without loops.
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
  std::vector<std::size_t> position_;    // per equation: behind which one it is computed
  std::vector<std::size_t> last_use_;    // per value: position of its last reader, or kNone
  std::vector<Passes> passes_;           // per equation; nothing of what is done once
  std::vector<Place> places_;
};

}  // namespace tessera::pipeline
