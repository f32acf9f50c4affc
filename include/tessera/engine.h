// Settings and counters of the engine of this process. Results never depend on threads.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// Executed collectives of one kind.
struct CollectiveUse {
  std::string kind;
  std::int64_t count = 0;
  std::int64_t bytes = 0;       // of the whole gathered or reduced arrays
  std::int64_t wire_bytes = 0;  // per device, ring model
  friend bool operator==(const CollectiveUse&, const CollectiveUse&) = default;
};

/// From 1 to 1024.
void set_num_threads(int count, std::source_location where = std::source_location::current());
int num_threads();
/// The instruction set that the kernels run on, for example AVX2. Results never depend on it.
std::string_view instruction_set();
/// `host` or `reference`.
void set_engine(std::string_view name,
                std::source_location where = std::source_location::current());
std::string_view engine();
/// Leaves of a reduced dimension, from 1 to 4096: part of what a sum means.
void set_grains(std::int64_t grains, std::source_location where = std::source_location::current());
std::int64_t grains();

/// Executed since the last reset, sorted by kind.
std::vector<CollectiveUse> collective_counts();
void reset_collective_counts();

}  // namespace tessera
