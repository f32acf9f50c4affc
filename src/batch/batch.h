// IR -> IR: the function of one element becomes the function of a batch of elements.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "ir/ir.h"
#include "ops/axis/axis.h"

namespace tessera::batch {

struct Batched {
  ir::Function function;
  std::vector<bool> is_output_batched;
};

/// `function` for `size` elements at once. Marked inputs, and the outputs that they reach, have the
/// batch dimension first; so have outputs that are marked in `must_be_batched` (missing: none),
/// which repeat what is the same for all elements. Row i of a batched output has the bits that
/// `function` gives for rows i. Ops over the named `axis` see its rows as elements. Throws
/// UserError for an op that cannot be batched.
Batched batch(const ir::Function& function, const std::vector<bool>& is_batched_input,
              std::int64_t size, const std::vector<bool>& must_be_batched = {},
              const ops::BatchAxis& axis = {});

}  // namespace tessera::batch
