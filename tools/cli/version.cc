#include "version.h"

namespace tessera::cli {

const char* version() { return TESSERA_VERSION; }

}  // namespace tessera::cli
