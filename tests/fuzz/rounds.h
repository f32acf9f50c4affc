// The reference engine with a count of what runs, and an end to loops that have none.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "tests/fuzz/run_sharded.h"

namespace tessera::fuzz {

struct Rounds {
  std::int64_t functions = 0;                       // runs of the function and those nested in it
  std::map<std::string, std::int64_t> collectives;  // runs of collectives that move data, by kind
};

/// Thrown when more functions run than any case needs.
struct EndlessLoop {};

/// The outputs of `function`, and what ran. Shardings mean nothing here: collectives change no
/// value of a whole array.
testing::Arrays run_counting(const ir::Function& function, testing::Arrays inputs, Rounds& rounds);

}  // namespace tessera::fuzz
