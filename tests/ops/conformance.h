// Properties that every sample of every record must have. Each check returns a failure text, or
// nothing.
//
// The conformance tests apply all checks to all records. tests/mutation applies them to records
// with a wrong rule.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tests/ops/sample_inputs.h"

namespace tessera::testing {

using Verdict = std::optional<std::string>;

// --- derivative_check.cc

/// Whether derivative_is_difference has anything to check.
bool has_derivative(const Case& c);
/// The derivative equals the central difference in f64.
Verdict derivative_is_difference(const Case& c);
/// The second derivative equals the central difference of the derivative.
Verdict second_derivative_is_difference(const Case& c);
/// Whether tangent_is_difference has anything to check.
bool has_tangents(const Case& c);
/// The derivative in forward mode equals the central difference in f64.
Verdict tangent_is_difference(const Case& c);

// --- batch_check.cc

bool has_batch_rule(const Case& c);
/// The batch rule gives the op on every element of the batch, bit for bit.
Verdict batch_is_the_op(const Case& c);

// --- factor_check.cc

/// The factors of each dimension multiply to its size. No factor is used twice in an array.
Verdict factors_cover_dimensions(const Case& c);
/// `reduced` lists the reduce factors, and no result has one.
Verdict factors_list_reductions(const Case& c);
/// A block of a result along a pass factor depends on no other block of the operands.
Verdict pass_factors_keep_blocks_apart(const Case& c);
/// The results of two halves along a reduce factor combine to the whole.
Verdict reduce_factors_are_combined(const Case& c);

// --- sharding_check.cc

struct ShardingChoices {
  std::vector<Mesh> meshes;
  std::size_t max_choices = 80;  // per mesh; all of them if there are fewer
};

/// Whether the host engine can run the sample. It cannot if only the partitioner inserts the op.
bool runs_on_host(const Case& c);
/// Host and reference agree, on ordinary and on special values.
Verdict host_is_reference(const Case& c);
/// Every choice of shardings on every mesh gives the bits of one device.
Verdict shardings_are_one_device(const Case& c, const ShardingChoices& tried);
/// The same for a function; `wanted` are its outputs on one device.
Verdict shardings_are_one_device(ir::Function function, const std::vector<ops::HostArray>& inputs,
                                 const std::vector<ops::HostArray>& wanted,
                                 const ShardingChoices& tried, std::mt19937_64& generator);
/// A collective does not change the values of a whole array.
Verdict collective_keeps_values(const Case& c);

}  // namespace tessera::testing
