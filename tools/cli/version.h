// Which Tessera this is.
#pragma once

namespace tessera::cli {

/// `0.2.0`
const char* version();

}  // namespace tessera::cli
