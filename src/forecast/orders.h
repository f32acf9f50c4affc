// The order in which a device takes up the items of a program.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "forecast/forecast.h"
#include "forecast/program.h"

namespace tessera::forecast {

/// What a device does one item at a time: computing, collectives, and transfers between groups.
enum class Lane : std::uint8_t { compute, collective, transfer };
inline constexpr std::size_t kNumLanes = 3;

/// Per lane, the numbers of its items in the order in which they are taken up. An item may be in
/// several lanes: it waits until it is the next one in each.
using Orders = std::array<std::vector<std::uint32_t>, kNumLanes>;

/// Without `overlaps`, everything is in the lane of computing.
Orders orders_of(const Program& program, bool overlaps, Order order);

}  // namespace tessera::forecast
