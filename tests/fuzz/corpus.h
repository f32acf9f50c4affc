// IR texts to start from.
#pragma once

#include <string>
#include <vector>

namespace tessera::fuzz {

/// The programs of tests/golden, `num_random` random programs, and these split over their meshes.
std::vector<std::string> ir_texts(int num_random);

}  // namespace tessera::fuzz
