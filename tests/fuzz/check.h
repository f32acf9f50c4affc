// What must hold for every case.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "tests/fuzz/case.h"

namespace tessera::fuzz {

/// What the cases have touched.
struct Coverage {
  std::map<std::string, int> ops;          // equations of the partitioned programs
  std::map<std::string, int> collectives;  // the same, by kind
  int cases = 0;
  int communicating = 0;  // cases in which data moved between devices
  int uneven = 0;         // cases with shards of different sizes
  int empty = 0;          // cases with a shard without elements
  int against_reference = 0;
};

struct Failure {
  std::string rule;
  std::string detail;
};

/// The first rule that the case breaks. Counts into `coverage` if given.
std::optional<Failure> check(const Case& c, Coverage* coverage = nullptr);

/// The smallest case found, by dropping outputs, equations and shardings, that breaks `rule`.
Case minimised(Case failing, const std::string& rule, double seconds);

}  // namespace tessera::fuzz
