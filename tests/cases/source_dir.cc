#include "tests/cases/source_dir.h"

namespace tessera {

std::filesystem::path source_dir() { return TESSERA_SOURCE_DIR; }

}  // namespace tessera
