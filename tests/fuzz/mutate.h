// Texts that are nearly right: mutations of texts that are.
#pragma once

#include <string>
#include <vector>

#include "tests/fuzz/random.h"

namespace tessera::fuzz {

/// Names, numbers and single characters; blanks go with what stands before them.
std::vector<std::string> tokens_of(const std::string& text);

/// `text` with a byte, a token, a line or a range changed, dropped, repeated or taken from `other`.
std::string mutated(const std::string& text, const std::string& other, Random& random);

/// A number that programs stumble over, as text.
std::string awkward_number(Random& random);

}  // namespace tessera::fuzz
