// Partitioning: takes a program and the shardings of its inputs, and gives every value a sharding.
//
//   ir::Function sharded = partition(function, {.inputs = {...}, .is_storage = {...}, ...});
//   std::puts(explain_text(sharded).c_str());
//
// Shapes stay global. Afterwards every value has a sharding over function.mesh, and an equation
// means: every tile of a result is computed from the operand tiles with the same atom digits.
// Collectives are the exception. If a reduced dimension is split, the results are partial, and the
// next collective resolves them. Bits never depend on shardings.
//
// Throws UserError for options that do not fit the function, InternalError for a broken rule.
// No state is shared between calls.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/pass.h"

namespace tessera::partition {

struct PartitionOptions {
  std::vector<Sharding> inputs;  // one per function input
  /// Per input: whether it is stored state, that is parameters and optimiser state. Atoms of stored
  /// state that also split the batch are propagated last, so that weights are gathered and
  /// activations stay.
  std::vector<bool> is_storage;
  /// Per output: the requested sharding. Missing entries are inferred.
  std::vector<std::optional<Sharding>> outputs;
  /// Per output: the input whose sharding an output without a requested sharding takes, or -1.
  /// Missing entries are -1.
  std::vector<int> output_follows;
  ir::PassOptions passes = {};
};

/// The partitioned program over function.mesh; sharding_constraint equations are gone.
ir::Function partition(const ir::Function& function, const PartitionOptions& options);
/// The passes of partitioning, in order. They refer to `options`.
std::vector<ir::Pass> passes(const PartitionOptions& options);
/// The same passes in two parts, for programs that are cut into pipeline stages in between.
std::vector<ir::Pass> split_passes(const PartitionOptions& options);
std::vector<ir::Pass> combine_passes();

/// Throws UserError unless the options fit the function.
void check_options(const ir::Function& function, const PartitionOptions& options);

/// One array moved by one collective, per device and step.
struct CollectiveInfo {
  std::string kind;  // name of the op
  Type type;         // of the array
  Sharding from, to;
  std::int64_t bytes;       // the whole gathered or reduced array of a group; or a window
  std::int64_t wire_bytes;  // received per device, ring model: (n-1)/n of bytes, twice all_reduce
  std::int64_t group_size;  // n: devices that exchange data
  Span span;                // of the equation that needed it
  std::string because;      // which operand of which equation, and which input caused it
  std::string cure;         // "passing input 1 as P('data')"; empty if none is known
  std::size_t equation;     // number of the collective; a combined one has several infos
  /// How often it runs per call: the product of the lengths of the enclosing scans. A while counts
  /// as one iteration, and every branch of a cond counts.
  std::int64_t count = 1;
};

/// The names of all kinds that explain() can list.
std::vector<std::string> collective_kinds();
/// Every collective that moves data (all_slice moves none), in program order. `names` are names of
/// the inputs; inputs without one are called `input 3`.
std::vector<CollectiveInfo> explain(const ir::Function& partitioned,
                                    const std::vector<std::string>& names = {});
/// The same as a table with totals per kind.
std::string explain_text(const ir::Function& partitioned,
                         const std::vector<std::string>& names = {});

/// One collective, or slice, of a change of sharding.
struct ReshardMove {
  std::string kind;  // name of the op
  AtomList atoms;    // the atoms along which data moves
  Sharding to;
  std::int64_t wire_bytes;  // received per device, ring model
  std::int64_t group_size;
};

struct ReshardMoves {
  std::vector<ReshardMove> moves;
  double bound;             // no plan is cheaper by more than this factor; 1 for the cheapest
  std::int64_t start_cost;  // the price of starting a collective, in bytes received
};

/// How to change the sharding of an array; neither sharding is partial.
ReshardMoves plan_moves(const Mesh& mesh, const Type& type, const Sharding& from,
                        const Sharding& to);

/// Throws InternalError unless every value has a sharding, operands and results of each equation
/// agree on its factors, reduced dimensions are split only where that is exact, partial values are
/// used by a single reducing collective, and each collective does what its kind allows. `after`
/// names the last pass.
void verify_partitioned(const ir::Function& function, std::string_view after);

}  // namespace tessera::partition
