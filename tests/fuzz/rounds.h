// Runs the reference engine, counts what runs, and stops endless loops.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "tests/fuzz/run_sharded.h"

namespace tessera::fuzz {

struct Rounds {
  std::int64_t functions = 0;  // runs of the function and of those nested in it
  std::map<std::string, std::int64_t> collectives;  // runs of collectives that move data, by kind
};

/// Thrown when more functions run than any valid case needs.
struct EndlessLoop {};

/// The outputs of `function`; `rounds` counts what ran. Shardings are ignored: a collective does
/// not change the value of a whole array.
testing::Arrays run_counting(const ir::Function& function, testing::Arrays inputs, Rounds& rounds);

}  // namespace tessera::fuzz
