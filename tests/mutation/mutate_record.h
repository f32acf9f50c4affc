// Records with one wrong rule.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ops/record.h"

namespace tessera::mutation {

/// The rule that a mutation makes wrong; each is judged by checks of its own.
enum class Rule : std::uint8_t { none, vjp, batch, factors, reference };

struct Mutant {
  std::string name;  // "vjp of operand 1: negated"
  Rule rule;
  std::unique_ptr<const ops::OpRecord> record;
};

/// The record as it is, at another place.
Mutant unchanged(const ops::OpRecord& op);
/// Every mutation that applies to some sample of the record.
std::vector<Mutant> mutants_of(const ops::OpRecord& op);

}  // namespace tessera::mutation
