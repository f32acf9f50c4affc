// What this machine has.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::cli {

struct Machine {
  std::string processor;  // as its maker calls it
  int cores = 1;
  std::int64_t memory = 0;       // bytes that processes may take together
  std::int64_t free_memory = 0;  // of those that are not taken
};
Machine this_machine();

}  // namespace tessera::cli
