// Functions nested in functions, to any depth.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/ir.h"

namespace tessera::nesting {

/// The op that a level puts around the level below it.
enum class Kind : std::uint8_t { scan, loop, cond, call, remat, custom_vjp };

struct Nest {
  std::vector<Kind> kinds;                // the outermost first
  std::vector<std::int64_t> rounds = {};  // of scans and loops, per level; 1 where missing
  bool is_flat = false;                   // computes the same values without nested functions
};

/// (w, a, b, c: f32[4,8]) -> (a, b, c). Each level passes on w and permutes the others. So a
/// property of one carry takes several iterations of an analysis to reach all carries.
ir::Function nested(const Nest& nest);
/// The same, with the sum of all results as the only result.
ir::Function nested_loss(const Nest& nest);

std::string to_string(const Nest& nest);

}  // namespace tessera::nesting
