// The processor and memory of this machine.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::cli {

struct Machine {
  std::string processor;  // the model name
  int cores = 1;
  std::int64_t memory = 0;       // bytes that all processes together may use
  std::int64_t free_memory = 0;  // bytes of these that are not used
};
Machine this_machine();

}  // namespace tessera::cli
