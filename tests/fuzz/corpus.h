// IR texts to be mutated.
#pragma once

#include <string>
#include <vector>

namespace tessera::fuzz {

/// The programs of tests/golden, `num_random` random programs, and the partitioned form of these.
std::vector<std::string> ir_texts(int num_random);

}  // namespace tessera::fuzz
