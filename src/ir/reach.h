// Which inputs of a function reach which of its outputs, also through nested functions.
#pragma once

#include <functional>
#include <unordered_map>

#include "base/small_list.h"
#include "ir/bodies.h"

namespace tessera::ir {

/// A set of small numbers.
class Bits {
 public:
  Bits() = default;
  explicit Bits(std::size_t size) : words_((size + 63) / 64, 0) {}

  bool has(std::size_t i) const { return (words_[i / 64] >> (i % 64) & 1U) != 0; }
  void add(std::size_t i) { words_[i / 64] |= std::uint64_t{1} << (i % 64); }
  /// Adds all members of a set of the same size; returns whether that changed anything.
  bool unite(const Bits& other) {
    bool is_changed = false;
    for (std::size_t w = 0; w < words_.size(); ++w) {
      is_changed = is_changed || (other.words_[w] & ~words_[w]) != 0;
      words_[w] |= other.words_[w];
    }
    return is_changed;
  }

 private:
  SmallList<std::uint64_t, 2> words_;
};

/// Looks at each nested function only once, however often it is used and however deeply it is
/// nested. In a function of n inputs, the number n stands for a source that does not depend on the
/// inputs.
class Reach {
 public:
  struct Rules {
    /// Whether a value of the type passes on what reaches it; missing: every value does.
    std::function<bool(const Type&)> passes = {};
    /// Adds what reaches the results of an equation, given that of every value, and returns true
    /// where that is not the union of what reaches its operands.
    std::function<bool(const Equation&, std::size_t n, const std::vector<Bits>& values,
                       std::vector<Bits>& results)>
        special = {};
  };
  Reach() = default;
  explicit Reach(Rules rules) : rules_(std::move(rules)) {}

  /// Per output of the function: the inputs that reach it. Keeps the function alive.
  const std::vector<Bits>& of(const std::shared_ptr<const Function>& function);

  /// Per value of the function, whether a marked input reaches it.
  std::vector<bool> marked_values(const Function& function, const std::vector<bool>& inputs);
  /// Per operand of an equation with bodies, whether a mark reaches it: its own mark or, for a
  /// carry, one that some iteration hands on.
  std::vector<bool> marked_operands(const Equation& equation, const BodyFlow& flow,
                                    const std::vector<bool>& operands);
  /// Per result, whether a mark reaches it.
  std::vector<bool> marked_results(const Equation& equation, const BodyFlow& flow,
                                   const std::vector<bool>& operands);

 private:
  /// What reaches the operands of an equation with bodies in its last iteration, and its results.
  struct Through {
    std::vector<Bits> operands;
    std::vector<Bits> results;
  };
  Through through(const Equation& equation, const BodyFlow& flow, std::size_t n,
                  std::vector<Bits> operands);
  /// Per value: what reaches it, if `inputs` reach the inputs.
  std::vector<Bits> values(const Function& function, std::size_t n,
                           const std::vector<Bits>& inputs);
  std::vector<Bits> results_of(const Equation& equation, std::size_t n,
                               const std::vector<Bits>& values);
  bool passes(const Type& type) const { return !rules_.passes || rules_.passes(type); }

  struct Known {
    std::shared_ptr<const Function> function;
    std::vector<Bits> outputs;
  };
  Rules rules_;
  std::unordered_map<const Function*, Known> known_;
};

}  // namespace tessera::ir
