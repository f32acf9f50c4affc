// Which values of a program may have an element -0.0, through loops and branches.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "ir/bodies.h"

namespace tessera::ops {

using ir::Equation;
using ir::Function;
using ir::ValueId;

/// Whether the value is an array of +0.0.
bool is_plus_zero(const Function& f, ValueId value);

/// If x has no element -0.0, x + 0.0 has the bits of x. Caches its results for nested functions,
/// which must outlive this object.
class MinusZeros {
 public:
  /// Per value of the function; `inputs`: whether each input may have one.
  std::vector<bool> values(const Function& f, const std::vector<bool>& inputs);
  /// Per input of the body: whether it may have one in any round.
  std::vector<bool> inputs_of(const Function& body, const Equation& equation,
                              const std::vector<bool>& operands);

 private:
  struct Through {
    std::vector<bool> operands, results;
  };
  std::vector<bool> results(const Equation& equation, const std::vector<bool>& operands);
  Through through(const Equation& equation, const ir::BodyFlow& flow, std::vector<bool> operands);
  const std::vector<bool>& outputs(const Function& body, const std::vector<bool>& inputs);
  static std::vector<bool> inputs_of(const Function& body, const ir::BodyFlow& flow,
                                     const std::vector<bool>& operands);

  std::map<std::pair<const Function*, std::vector<bool>>, std::vector<bool>> outputs_;
};

}  // namespace tessera::ops
