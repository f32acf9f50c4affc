// A JAX program as it is: with its own mesh and shardings, called with tiles. This is what the
// plugin for JAX runs.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/array_node.h"
#include "stablehlo/import/import.h"

namespace tessera::detail {

using stablehlo::TermDims;

struct Program;

/// Bytes of one device.
struct DeviceBytes {
  std::int64_t arguments = 0;
  std::int64_t outputs = 0;
  std::int64_t aliased = 0;  // of the outputs: in the memory of donated arguments
  std::int64_t temporaries = 0;
};

/// A function that a program calls while it runs: reads the elements of its operands and writes
/// those of its results, row-major.
using HostCall = std::function<void(std::span<const std::byte* const> operands,
                                    std::span<std::byte* const> results)>;
/// Finds the function that a module calls by this number; empty if there is none. `where`: the line
/// that calls it.
using FindHostCall = std::function<HostCall(std::int64_t number, const Span& where)>;

class ModuleProgram {
 public:
  /// Reads StableHLO bytecode, partitions it over `num_devices` devices and compiles it. If the
  /// module leaves the sharding of a result open, the result is split evenly over whole axes.
  /// Throws UserError for what Tessera cannot compute.
  ModuleProgram(std::string_view bytes, std::int64_t num_devices,
                const FindHostCall& find_host_call);

  /// `step` for a module named jit_step.
  const std::string& name() const;
  /// The placement per argument. Device ids in its mesh are numbers of partitions of the module.
  const std::vector<PlacementPtr>& arguments() const { return arguments_; }
  const std::vector<PlacementPtr>& results() const { return results_; }
  const std::vector<bool>& donated() const { return donated_; }
  /// Which leading dimensions hold terms.
  const std::vector<TermDims>& argument_terms() const { return argument_terms_; }
  const std::vector<TermDims>& result_terms() const { return result_terms_; }
  /// Whether the argument or result is complex, with the two parts along a last dimension.
  const std::vector<bool>& argument_is_complex() const { return argument_is_complex_; }
  const std::vector<bool>& result_is_complex() const { return result_is_complex_; }
  /// The type of the floats of 8 bits whose bits an argument or result of u8 has, such as f8E4M3FN;
  /// empty for others.
  const std::vector<std::string>& argument_narrow() const { return argument_narrow_; }
  const std::vector<std::string>& result_narrow() const { return result_narrow_; }
  /// The kinds of memory that the module states, such as pinned_host; empty where it states none.
  const std::vector<std::string>& result_memory_kinds() const { return result_memory_kinds_; }
  /// The partitioned program; and its collectives with their causes.
  std::string text() const;
  std::string explain() const;
  /// What one device computes, as text in StableHLO; empty if that cannot be written.
  std::string stablehlo() const;
  /// Bytes of one device.
  DeviceBytes memory() const;
  /// The totals for all devices.
  std::int64_t flops() const;
  std::int64_t bytes() const;
  /// Whether the program has loops, which these totals count for one iteration only.
  bool has_loops() const;
  /// Whether the program calls the host.
  bool calls_host() const;

  /// Computes the tiles of the results. May overwrite tiles of donated arguments that have no other
  /// owner. Several threads may call it.
  std::vector<run::Tiles> run(std::vector<run::Tiles> arguments) const;

 private:
  std::shared_ptr<Program> program_;
  std::vector<PlacementPtr> arguments_;
  std::vector<PlacementPtr> results_;
  std::vector<bool> donated_;
  std::vector<TermDims> argument_terms_;
  std::vector<TermDims> result_terms_;
  std::vector<bool> argument_is_complex_;
  std::vector<bool> result_is_complex_;
  std::vector<std::string> argument_narrow_;
  std::vector<std::string> result_narrow_;
  std::vector<std::string> result_memory_kinds_;
};

}  // namespace tessera::detail
