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

/// Makes a function that computes `function` for `size` elements at once. Inputs marked in
/// `is_batched_input`, and the outputs that depend on them, get a first dimension of `size`. So do
/// outputs marked in `must_be_batched` (missing marks are false): they repeat a value that is the
/// same for all elements. Row i of a batched output has the same bits as `function` gives for rows
/// i of the inputs. Ops over the named `axis` treat the rows as its elements. Throws UserError for
/// an op that cannot be batched.
Batched batch(const ir::Function& function, const std::vector<bool>& is_batched_input,
              std::int64_t size, const std::vector<bool>& must_be_batched = {},
              const ops::BatchAxis& axis = {});

}  // namespace tessera::batch
