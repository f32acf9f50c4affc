// Where the source tree is, for tests that read its files.
#pragma once

#include <filesystem>

namespace tessera {

/// The root of the source tree that the tests were built from.
std::filesystem::path source_dir();

}  // namespace tessera
