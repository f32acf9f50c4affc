// The clock by which the engine and its transports measure and wait.
#pragma once

#include <chrono>

namespace tessera::run {

using Clock = std::chrono::steady_clock;

}  // namespace tessera::run
