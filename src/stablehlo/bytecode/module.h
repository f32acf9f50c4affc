// A StableHLO module as portable bytecode stores it: a tree of operations in the dialects vhlo, sdy
// and builtin. Nothing is interpreted here, and nothing in the file is left out.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/types.h>

namespace tessera::stablehlo::bytecode {

struct Attribute;

enum class Dialect : std::uint8_t { builtin, vhlo, sdy, stablehlo };

/// The size of a dimension that is known only at run time.
inline constexpr std::int64_t kDynamicSize = INT64_MIN;

struct Type {
  enum class Kind : std::uint8_t {
    scalar,           // name
    complex,          // types[0]
    tensor,           // shape, types[0], encoding
    unranked_tensor,  // types[0]
    buffer,           // shape, types[0]
    tuple,            // types
    future,           // types
    function          // types, results
  };
  Kind kind = Kind::scalar;
  Dialect dialect = Dialect::builtin;
  std::string_view name = {};  // of a scalar: i1, i32, ui32, si8, bf16, f32, index, token, ...
  std::vector<std::int64_t> shape = {};
  std::vector<const Type*> types = {};
  std::vector<const Type*> results = {};
  const Attribute* encoding = nullptr;
  std::int64_t depth = 1;  // of the tree below it
  std::int64_t nodes = 1;  // in the tree below it, shared ones counted each time
};

/// `tensor<2x3xf32>`, without the dialect.
std::string plain_text(const Type& type);

struct Attribute {
  // Which fields each kind uses, besides `type` if it has one. Lists of attributes are in `items`.
  enum class Kind : std::uint8_t {
    array,            // items
    boolean,          // numbers[0]
    dictionary,       // items: key and value in turn
    enumeration,      // text: its name; name: of the enumeration
    floating,         // numbers[0]: bits
    integer,          // numbers[0]
    string,           // text
    symbol,           // text: the name; items: nested symbols
    tensor,           // text: the elements, little-endian; one for a splat
    array_of_scalar,  // text: the elements; numbers[0]: how many
    type,             // type
    unit,             //
    alias,            // numbers: operand index, size of the first list, both lists
    bounds,           // numbers
    accuracy,         // numbers: bits of two doubles, ulps; items[0]: mode
    sub_axis,         // numbers: size before, size
    axis,             // text or items[0]: name; then the sub axis, if any
    replica_groups,   // items: mesh, axes
    mesh_axis,        // text or items[0]: name; numbers[0]: size
    mesh,             // items: axes, or an array of them and one of devices; numbers: devices
    manual_axes,      // items: strings
    axes,             // items: axes
    dimension,        // items: axes; numbers: closed, priority or -1
    sharding,         // items: mesh, dimensions, replicated, unreduced; numbers: their counts, kind
    shardings,        // items: a sharding per value
    factors,          // of a dimension or a tensor. numbers: factors; items: dimensions
    sharding_rule,    // see sdy.cc
    unknown_location,
    name_location,   // text; items[0]: where
    call_location,   // items: callee, caller
    fused_location,  // items; numbers[0]: whether the last item is metadata
    file_location,   // text: file; numbers: line, column, last line, last column; as many as known
    assembly         // text, as MLIR writes it
  };
  Kind kind = Kind::unit;
  Dialect dialect = Dialect::builtin;
  std::string_view name = {};
  std::string_view text = {};
  std::vector<std::int64_t> numbers = {};
  std::vector<const Attribute*> items = {};
  const Type* type = nullptr;
  std::int64_t depth = 1;
  std::int64_t nodes = 1;
};

using NamedAttribute = std::pair<std::string_view, const Attribute*>;
using ValueNumber = std::uint32_t;

struct Operation;

/// At most one block: StableHLO has no branches.
struct Region {
  bool has_block = false;
  std::vector<ValueNumber> arguments;
  std::vector<const Attribute*> argument_locations;  // nullptr if unknown
  std::vector<Operation> operations;
};

struct Operation {
  std::string_view name = {};                   // vhlo.add_v1
  std::vector<NamedAttribute> properties = {};  // sorted by name
  std::vector<NamedAttribute> attributes = {};  // others, sorted by name
  std::vector<ValueNumber> operands = {};
  std::vector<ValueNumber> results = {};
  std::vector<Region> regions = {};
  const Attribute* location = nullptr;

  /// nullptr if the operation has no attribute of this name.
  const Attribute* find(std::string_view attribute) const;
};

/// Owns everything that its operations point to.
struct Module {
  std::string bytes;
  std::vector<std::string> operation_names;
  std::string producer;                  // StableHLO_v1.13.0
  Operation root;                        // builtin.module
  std::vector<const Type*> value_types;  // by number
  std::deque<Type> types;
  std::deque<Attribute> attributes;
  std::deque<std::string> texts;  // of attributes that were created, not read
};

/// The innermost line of the program that a location names; empty if it names none.
Span line_of(const Attribute* location);

/// Reads a module, of StableHLO 0.9 to 1.22. Memory and time are linear in the number of bytes.
/// Throws UserError if the bytes are not such a module.
std::unique_ptr<const Module> read_module(std::string bytes);

struct PrintOptions {
  bool locations = true;
};

/// The generic form of MLIR, with locations written in place.
std::string print(const Module& module, PrintOptions options = {});

}  // namespace tessera::stablehlo::bytecode
