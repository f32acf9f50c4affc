// Mutates texts, so that they are nearly right.
#pragma once

#include <string>
#include <vector>

#include "tests/fuzz/random.h"

namespace tessera::fuzz {

/// Splits into names, numbers and single characters. Blanks belong to the token before them.
std::vector<std::string> tokens_of(const std::string& text);

/// `text` with a byte, a token, a line or a range changed, dropped, repeated or taken from `other`.
std::string mutated(const std::string& text, const std::string& other, Random& random);

/// A number that is likely to break programs, as text.
std::string awkward_number(Random& random);

}  // namespace tessera::fuzz
