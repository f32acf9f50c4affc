// Turns operations into equations.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ops/emit.h"
#include "stablehlo/bytecode/module.h"
#include "stablehlo/import/import.h"

namespace tessera::stablehlo {

using bytecode::Attribute;
using bytecode::Operation;
using bytecode::Region;
using bytecode::ValueNumber;
using ir::Ints;
using ir::ValueId;
using Values = std::vector<ValueId>;

/// State that all functions of a module share.
struct ModuleContext {
  const bytecode::Module& module;
  std::unordered_map<std::string_view, const Operation*> functions = {};
  Mesh mesh = {};  // the first mesh, or that of the current function of tiles
  std::unordered_map<std::string_view, Mesh> meshes = {};  // by name
  std::size_t equations = 0;                               // so far
  Span call_line = {};                                     // of the call that is being inlined
  MapTiles map_tiles = {};            // nullptr: functions of tiles are refused
  FindHostCall find_host_call = {};   // nullptr: called functions are not known
  std::vector<MeshAxis> manual = {};  // axes over which the current function is mapped
};

/// Axes whose devices have terms of a value, and the reduction that makes the value from them.
struct Unreduced {
  std::vector<MeshAxis> axes = {};  // in the order of the mesh
  std::string_view reduction = "reduce_sum";
};

/// The terms of a sum, maximum or minimum that the devices of a mesh have.
struct Terms {
  ValueId array;  // with a leading dimension for each of the axes
  Unreduced of;
};

/// Per element, a counter encrypted by Threefry: `low`, and the high word, which is the key of this
/// entry.
struct Encrypted {
  ValueId low;
  std::array<ValueId, 2> key;      // scalars
  std::array<ValueId, 2> counter;  // high and low words
};

/// A function of the IR under construction.
class Frame {
 public:
  Frame(ModuleContext& context, ir::Function& function) : context_(context), builder_(function) {}

  ModuleContext& context() { return context_; }
  ir::Builder& builder() { return builder_; }
  const Type& type(ValueId value) const { return builder_.type(value); }

  ValueId value(ValueNumber number) const;
  /// The input that holds a constant whose elements differ.
  ValueId constant(const Attribute* constant) const;
  void define(ValueNumber number, ValueId value) { values_[number] = value; }
  /// From now on, readers of `from` read `to` instead.
  void replace(ValueId from, ValueId to);
  void define_constant(const Attribute* constant, ValueId value) { constants_[constant] = value; }

  /// The operations of a region. Returns the operands of its last one.
  Values block(const Region& region);
  Values call(const Operation& function, const Values& arguments, const Operation& caller);
  /// A separate function. Its first inputs are captured values and constants of this frame; then
  /// come those of the region.
  struct Captures {
    std::vector<ValueNumber> values;
    std::vector<const Operation*> constants;
    bool has_taken = false;  // the last one is `taken`
  };
  Captures captures_of(const Operation& op) const;
  Values captured(const Captures& captures) const;
  std::shared_ptr<const ir::Function> nested(const Operation& op, const Region& region,
                                             const Captures& captures);

  /// The equation that computes a value; nullptr for inputs. Takes time for values made long ago.
  const ir::Equation* maker_of(ValueId value);

  // What is known about values: the one number of a constant, the terms of a sum, random words.
  std::unordered_map<ValueId, double> splats;
  std::unordered_map<ValueId, Terms> terms;
  std::unordered_map<ValueId, Encrypted> encrypted;
  /// In a function of tiles: whether control flow of the device reaches this point, if it may not.
  /// All devices compute all branches, but only devices that reach a call of the host make it.
  std::optional<ValueId> taken;

 private:
  void operation(const Operation& op);

  ModuleContext& context_;
  ir::Builder builder_;
  std::unordered_map<ValueNumber, ValueId> values_;
  std::map<const Attribute*, ValueId> constants_;
  int depth_ = 0;  // of calls
};

/// One operation and its operands.
struct Context {
  Frame& frame;
  const Operation& op;
  Values operands;

  ir::Builder& b() { return frame.builder(); }
  const Type& type(ValueId value) const { return frame.type(value); }
  ValueId operand(std::size_t i) const;
  /// The type of result `i`.
  Type result(std::size_t i = 0) const;
  const Attribute& attribute(std::string_view name) const;
  std::int64_t integer(std::string_view name) const;
  bool boolean(std::string_view name) const;
  /// The elements of a tensor of integers.
  Ints ints(std::string_view name) const;
  std::string_view text(std::string_view name) const;
  const Region& region(std::size_t i) const;
  /// Throws UserError: `reason` says what exactly is not supported.
  [[noreturn]] void unsupported(const std::string& reason) const;
  void need(bool holds, const char* reason) const {
    if (!holds) unsupported(reason);
  }
};

/// `add` for vhlo.add_v1.
std::string_view kind_of(const Operation& op);
/// The operation of a region that has this result; nullptr if there is none.
const Operation* maker_of(const Region& region, ValueNumber value);
/// The text of an attribute; empty if there is none.
std::string_view text_of(const Operation& op, std::string_view attribute);

/// The target of custom calls that call a function of the host program.
inline constexpr std::string_view kHostCall = "tessera.call_host";
/// A body without sharding constraints: within functions of tiles, and in programs with explicit
/// shardings, even scalars have them.
Region without_copies(const Region& body);
/// The mark of an operation whose body is associative although it consists of several operations.
inline constexpr std::string_view kAssociative = "tessera.associative";
/// The kind of the one operation of a body that joins its two arguments; empty if it does more.
std::string_view joined_by(const Region& body);
/// The reduction over `dims` by a body that is a single operation. Throws UserError for other
/// bodies.
ValueId reduced_with(Context& c, ValueId x, const Region& body, const Ints& dims);
/// The custom call ApproxTopK: the exact greatest or least elements.
Values approx_top_k(Context& c);
/// The value of this name in a dictionary; nullptr if there is none.
const Attribute* entry_of(const Attribute& dictionary, std::string_view name);
/// The integer `name` of the settings of a custom call.
std::int64_t setting_of(Context& c, std::string_view name);
/// The custom call of a factorisation; nullopt if it is another function.
std::optional<Values> linear_algebra_call(Context& c, std::string_view function);
/// The custom call with which programs call the host program.
Values host_call(Context& c);
/// The custom call that asks for the sharding of a value. Its function gets it as text.
Values inspection(Context& c);
/// Whether the functions of an operation have such calls, and devices may take different branches.
bool calls_host_by_device(const ModuleContext& context, const Operation& op);
bool is_token(const Context& c, ValueNumber value);
/// The type of a token. The IR's own tokens define the order, so tokens of programs are arrays
/// without elements.
Type token_type();
/// Whether a value is known to leave others unchanged.
bool is_neutral(const Context& c, ValueId first, std::string_view join);
/// Joins the first value of a reduction to its result, unless that changes nothing.
ValueId with_first(Context& c, ValueId result, ValueId first, std::string_view join);
/// The identity element of an operation of the IR (add, mul, max, min, and, or).
double neutral_of(std::string_view join, DType dtype);
/// The call of the function that a composite stands for. Throws UserError if it has none.
Operation call_of_decomposition(const ModuleContext& context, const Operation& composite);
bool is_complex(const bytecode::Type& type);
/// Only arguments and results of `main` are complex; they have their two parts along a last
/// dimension. Throws UserError for a type that the IR does not have.
Type type_of(const ModuleContext& context, ValueNumber value, const Operation& op);
/// The elements of a constant in the format of the IR.
std::string elements_of(const Attribute& constant, DType dtype);
/// Whether it is a constant whose elements differ.
bool is_dense(const Operation& op);
/// Integers as i32, the dtype of indices. Numbers that are too large or too small become the
/// largest or the smallest one.
ValueId as_index(Context& c, ValueId x);

/// Converts the factors of summed products where sums in their own dtype would not give the result:
/// sums of products of integers would wrap, and booleans have to be counted.
void match_for_sums(Context& c, ValueId& lhs, ValueId& rhs);
/// Converts such sums to the dtype of the result.
ValueId as_sum(Context& c, ValueId sums);

/// Notes the results of a call, whose first equation is number `first`, if they are words encrypted
/// by Threefry.
void note_threefry(Context& c, std::size_t first, const Values& results);
/// If the exclusive or of the two operands gives random bits: these.
std::optional<ValueId> random_bits_of(Context& c);
/// If concatenating the operands along `dim` gives keys: these.
std::optional<ValueId> random_keys_of(Context& c, std::int64_t dim);

/// Integers in the total order of IEEE 754 (-NaN, ..., -0, +0, ..., NaN) of floats: i64 for f64,
/// otherwise i32.
ValueId total_order(Context& c, ValueId x);

/// The shift `op` by a number of bits.
ValueId shifted(ir::Builder& b, const char* op, ValueId x, std::size_t bits);

using Handler = Values (*)(Context&);
using Handlers = std::unordered_map<std::string_view, Handler>;
// One table for each family of operations.
const Handlers& elementwise_handlers();
const Handlers& shape_handlers();
const Handlers& reduction_handlers();
const Handlers& window_handlers();
const Handlers& fourier_handlers();
const Handlers& index_handlers();
const Handlers& control_handlers();
const Handlers& token_handlers();
const Handlers& collective_handlers();
const Handlers& manual_handlers();
const Handlers& generator_handlers();
const Handlers& linear_algebra_handlers();

/// The mesh that a module states, if any.
void read_mesh(ModuleContext& context);
/// The sharding that an attribute of the dialect sdy states. Axes that it calls unreduced do not
/// split anything.
Sharding sharding_of(const ModuleContext& context, const Attribute& attribute, const Type& type,
                     const Operation& op);
/// Along which axes devices have terms instead of the value.
Unreduced unreduced_of(const ModuleContext& context, const Attribute& sharding,
                       const Operation& op);
/// The type and the sharding of the array that has the terms of a value along leading dimensions.
Type with_terms(Type type, const std::vector<MeshAxis>& axes);
Sharding with_terms(const ModuleContext& context, Sharding sharding,
                    const std::vector<MeshAxis>& axes, const Type& type, const Operation& op);
/// The value that an array of terms stands for. The terms are noted.
ValueId value_of_terms(Frame& frame, ValueId array, const Unreduced& of);
/// The terms of a value along these axes, if they are known. Otherwise the first device has the
/// whole value as its term or, for a maximum or minimum, every device has it.
ValueId terms_of(Frame& frame, ValueId value, const Unreduced& of);
[[noreturn]] void fail_unsupported(const ModuleContext& context, const Operation& op,
                                   const std::string& reason);

}  // namespace tessera::stablehlo
