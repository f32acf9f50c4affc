// Copies of op records with one wrong rule.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ops/record.h"

namespace tessera::mutation {

/// The rule that a mutation breaks. Each rule has its own checks.
enum class Rule : std::uint8_t { none, vjp, batch, factors, reference };

struct Mutant {
  std::string name;  // "vjp of operand 1: negated"
  Rule rule;
  std::unique_ptr<const ops::OpRecord> record;
};

/// An unchanged copy of the record.
Mutant unchanged(const ops::OpRecord& op);
/// Every mutation that applies to some sample of the record.
std::vector<Mutant> mutants_of(const ops::OpRecord& op);

}  // namespace tessera::mutation
