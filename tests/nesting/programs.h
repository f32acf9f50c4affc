// Functions nested in functions, as deep as wanted.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/ir.h"

namespace tessera::nesting {

/// What a level puts around the one below.
enum class Kind : std::uint8_t { scan, loop, cond, call, remat, custom_vjp };

struct Nest {
  std::vector<Kind> kinds;                // the outermost first
  std::vector<std::int64_t> rounds = {};  // of scans and loops, per level; missing: one
  bool is_flat = false;                   // the same values without any nested function
};

/// (w, a, b, c: f32[4,8]) -> (a, b, c). Each level hands w and all three on, in another order, so
/// that what is known of a carry takes several rounds to reach all of them.
ir::Function nested(const Nest& nest);
/// The same with the sum of all results as the only one.
ir::Function nested_loss(const Nest& nest);

std::string to_string(const Nest& nest);

}  // namespace tessera::nesting
