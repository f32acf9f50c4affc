// Warns the user of what works, but probably not as intended.
#pragma once

#include <tessera/debug.h>

namespace tessera::detail {

/// Passes the warning to the handler of the user, or prints it.
void warn(const Warning& warning);

}  // namespace tessera::detail
