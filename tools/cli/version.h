// The version of Tessera.
#pragma once

namespace tessera::cli {

/// For example `0.2.0`.
const char* version();

}  // namespace tessera::cli
