// Programs of JAX as programs of the IR.
//
//   Imported program = stablehlo::import_module(*bytecode::read_module(bytes));
//
// Calls are inlined. ui64 values become u32 where no element can reach 2^32, as in the counters of
// random bits. For anything that the IR cannot express, throws UserError with the operation, its
// types and the line of the Python program.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ir/builder.h"
#include "ir/ir.h"
#include "stablehlo/bytecode/module.h"

namespace tessera::stablehlo {

/// An array of the program itself, row-major and little-endian; a bool takes a byte.
struct ConstantArray {
  Type type;
  std::string bytes;
};

/// Per dimension of an array, the mesh axes that split it, major first.
using TileSpec = std::vector<std::vector<std::string>>;

/// A function of the tiles of one device.
struct ManualBody {
  /// Its inputs: the operands, then values that are the same on all devices. Devices are elements
  /// of the named axes.
  ir::Function function;
  std::vector<MeshAxis> axes;     // over which it is mapped
  std::vector<TileSpec> inputs;   // of the operands
  std::vector<TileSpec> outputs;  // of the results
  Span where;
};
/// Appends equations that compute the results of the function on all devices, as whole arrays.
using MapTiles = std::function<std::vector<ir::ValueId>(ir::Builder&, const Mesh&, ManualBody,
                                                        const std::vector<ir::ValueId>& operands)>;

/// The function of the program that calls Tessera, by the number in a custom call; nullptr if there
/// is none. `where`: the line of the call.
using FindHostCall = std::function<std::shared_ptr<const ir::HostCallback::Call>(
    std::int64_t number, const Span& where)>;

/// Axes over which a value has not been reduced yet. For each of them it has a leading dimension,
/// which is split over that axis and holds the terms.
struct TermDims {
  std::size_t count = 0;
  std::string_view reduction = "reduce_sum";
};

struct Imported {
  std::string name;  // of the module, without JAX's jit_
  /// `main`. Its inputs are the arguments, then the constants. Inputs have the shardings that the
  /// module states, results a sharding_constraint.
  ir::Function function;
  std::vector<ConstantArray> constants;
  /// Per argument: whether its memory may be reused.
  std::vector<bool> donated;
  /// Per result: the argument whose memory the module gives it, or -1.
  std::vector<int> replaces;
  /// Per argument and result.
  std::vector<TermDims> argument_terms, result_terms;
  /// Per argument and result: whether it is complex. Then its last dimension has the two parts.
  std::vector<bool> argument_is_complex, result_is_complex;
  /// Per argument and result: the type of its elements if the array has bytes in their place
  /// (stablehlo/narrow/bytes.h), such as f8E4M3FN or i4. Empty for others.
  std::vector<std::string> argument_narrow, result_narrow;
  /// Per result: the kind of memory that the module states for it; empty if it does not.
  std::vector<std::string> result_memory_kinds;
  Span where;  // of `main`
};

/// Without `map_tiles`, functions of tiles are refused. Without `find_host_call`, calls of the
/// calling program have no function, so the imported program can be read but not run. Throws
/// UserError.
Imported import_module(const bytecode::Module& module, const MapTiles& map_tiles = {},
                       const FindHostCall& find_host_call = {});

}  // namespace tessera::stablehlo
