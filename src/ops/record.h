// One record per op. It holds everything that the stages of compilation know about the op.
//
//   const OpRecord exp_op{
//       .name = "exp", .doc = "e to the power x.", .source = "StableHLO, exponential",
//       .attributes = AttributeNames{}, .types = kFloats, .shape = same_as_operand,
//       .vjp = [](VjpContext& c) -> Cotangents { return {mul(c.b, c.cotangent(), c.result())}; },
//       .batch = elementwise_batch,
//       .factors = elementwise_factors, .pattern = Pattern::elementwise, .host = "exp",
//       .stablehlo = "stablehlo.exponential {0} : {type}",
//       .reference = unary([](auto x) { return std::exp(x); }),
//       .cost = flops_per_element(1), .samples = Samples{...}};
//
// All fields are required: their types have no default constructor, so a record that lacks one does
// not compile. If an op lacks a rule, its record states why.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include <tessera/types.h>

#include "base/dot_unit.h"
#include "ir/builder.h"
#include "ir/ir.h"
#include "ops/axis/axis.h"
#include "ops/factors.h"
#include "ops/host_array.h"
#include "ops/stablehlo/rule.h"

namespace tessera::ops {

using ir::Attributes;
using ir::Builder;
using ir::Equation;
using ir::ValueId;

/// A field of a record that has no default value.
template <typename T>
class Field {
 public:
  Field() = delete;
  template <typename U>
  requires std::is_constructible_v<T, U> Field(U&& value)
      : value_(std::forward<U>(value)) {}  // NOLINT(google-explicit-constructor)
  const T& operator*() const { return value_; }
  const T* operator->() const { return &value_; }

 private:
  T value_;
};

/// Dtypes that operands may have.
enum class TypeSet : std::uint8_t {
  boolean = 1,
  integers = 2,
  wide_floats = 4,   // f32 and f64
  wide_numbers = 6,  // the dtypes in which sums are accumulated (f32 for f16 and bf16)
  floats = 12,
  numbers = 14,
  bits = 3,  // booleans and integers
  any = 15,
};
bool contains(TypeSet set, DType dtype);

/// The names of the op's attributes, sorted.
using AttributeNames = std::vector<std::string>;

// --- shapes

struct ShapeContext {
  std::string_view op;
  const Attributes& attributes;
  const std::vector<Type>& operands;
  const Span& span;

  /// Throws UserError; the message gives the operand types as what was found.
  [[noreturn]] void fail(const std::string& what, const std::string& wanted,
                         const std::string& cure) const;
};
/// Computes the result types from operand types and attributes; calls `fail` for invalid operands.
using ShapeRule = std::function<std::vector<Type>(const ShapeContext&)>;

// --- derivatives

/// One cotangent per operand; kNoValue where the rule computes none.
using Cotangents = std::vector<ValueId>;

struct VjpContext {
  Builder& b;
  const Equation& equation;         // operands and results are values of b.function()
  std::vector<ValueId> cotangents;  // per result; kNoValue for a zero cotangent
  std::vector<bool> is_wanted;      // per operand: whether its cotangent is needed

  ValueId operand(std::size_t i) const { return equation.operands[i]; }
  ValueId result(std::size_t i = 0) const { return equation.results[i]; }
  ValueId cotangent(std::size_t i = 0) const { return cotangents[i]; }
  const Type& operand_type(std::size_t i) const { return b.type(operand(i)); }
};

/// Emits the equations of the backward pass, or gives the reason why the op has no derivative.
class VjpRule {
 public:
  VjpRule() = delete;
  template <typename F>
  requires std::is_invocable_r_v<Cotangents, F, VjpContext&> VjpRule(F emit)
      : emit_(std::move(emit)) {}  // NOLINT(google-explicit-constructor)

  friend VjpRule not_differentiable(std::string why);
  friend VjpRule differentiated_inside();
  bool is_differentiable() const { return why_not_.empty(); }
  const std::string& why_not() const { return why_not_; }
  Cotangents operator()(VjpContext& context) const { return emit_(context); }

 private:
  VjpRule(std::nullptr_t, std::string why) : why_not_(std::move(why)) {}
  std::function<Cotangents(VjpContext&)> emit_;
  std::string why_not_;
};
VjpRule not_differentiable(std::string why);
/// For ops with nested functions, which src/differentiate handles itself.
VjpRule differentiated_inside();

// --- batching

struct BatchContext {
  Builder& b;
  const Equation& equation;       // as traced for a single element of the batch
  std::vector<Type> types;        // per operand, for a single element of the batch
  std::vector<ValueId> operands;  // values of b.function(); batched ones have the batch dimension
                                  // first
  std::vector<bool> is_batched;   // per operand; may be all false for ops over the mapped axis
                                  // itself
  std::int64_t size;              // of the batch dimension
  BatchAxis axis = {};
  std::vector<bool> is_result_batched = {};  // per result; a rule may clear entries

  /// Operand i with the batch dimension; broadcast along it if the operand is not batched.
  ValueId batched(std::size_t i);
};

/// Emits the op for a whole batch. Results have the batch dimension first, except those whose entry
/// in is_result_batched was cleared: they are the same for all elements.
class BatchRule {
 public:
  BatchRule() = delete;
  template <typename F>
  requires std::is_invocable_r_v<std::vector<ValueId>, F, BatchContext&> BatchRule(F emit)
      : emit_(std::move(emit)) {}  // NOLINT(google-explicit-constructor)

  friend BatchRule not_batched(std::string why);
  friend BatchRule batched_inside();
  bool has_rule() const { return why_not_.empty(); }
  bool is_inside() const { return has_rule() && !emit_; }
  const std::string& why_not() const { return why_not_; }
  std::vector<ValueId> operator()(BatchContext& context) const { return emit_(context); }

 private:
  BatchRule(std::nullptr_t, std::string why) : why_not_(std::move(why)) {}
  std::function<std::vector<ValueId>(BatchContext&)> emit_;
  std::string why_not_;
};
BatchRule not_batched(std::string why);
/// For ops that src/batch handles itself: those with nested functions, and optimization_barrier.
BatchRule batched_inside();

// --- engines

/// What the op does with the elements of its operands, on any engine.
enum class Pattern : std::uint8_t {
  elementwise,  // an element of the result depends on the elements in the same place
  generator,    // an element of the result depends on its index; reads no arrays
  view,         // the result has elements of the operand, in other places; computes nothing
  opaque,       // anything else
  control,      // runs its bodies, or is rewritten before an engine sees it
};

/// The name of the kernel or of the lowering that the host compiler uses. In the name of an
/// elementwise kernel, `{direction}` stands for the value of that attribute, `{from}` and `{to}`
/// for the dtypes of operand and result.
using HostRule = std::string;

struct ReferenceContext {
  const Attributes& attributes;
  const std::vector<const HostArray*>& operands;
  const std::vector<Type>& results;
  std::int64_t grains;
  /// Evaluates a nested function.
  const std::function<std::vector<HostArray>(const ir::Function&, std::vector<HostArray>)>& call;
  /// The unit that multiplies bf16 operands, which `evaluate` passes to a reference as f32.
  DotUnit dot_unit = DotUnit::portable;
};
/// Simple loops that are obviously right. Handles every dtype that the op accepts except bf16; call
/// it through `evaluate`, which handles bf16 too.
using Reference = std::function<std::vector<HostArray>(const ReferenceContext&)>;

/// The number of floating point operations of one application, from operand and result types.
using CostRule = std::function<double(const Attributes&, const std::vector<Type>& operands,
                                      const std::vector<Type>& results)>;

// --- tests

struct SampleOperand {
  Type type;
  double low = -2.0;  // values are drawn from [low, high]
  double high = 2.0;
  double diagonal = 0.0;  // times i + 1, added to the elements [.., i, i]
};

/// An application of the op from which the conformance tests generate their cases.
struct Sample {
  std::vector<SampleOperand> operands;
  Attributes attributes = {};
  double max_ulp = 0.0;  // host against reference
  /// The same in epsilons of the dtype, relative to the largest element of a result.
  double max_error = 0.0;

  /// Whether host and reference must have equal bits.
  bool is_exact() const { return max_ulp == 0.0 && max_error == 0.0; }
};

using Samples = std::vector<Sample>;

/// Samples, or a function that makes them on first use, because nested functions need the op table.
class SampleList {
 public:
  SampleList() = delete;
  SampleList(Samples samples)
      : samples_(std::move(samples)) {}           // NOLINT(google-explicit-constructor)
  SampleList(Samples (*make)()) : make_(make) {}  // NOLINT(google-explicit-constructor)
  const Samples& operator*() const;
  const Samples* operator->() const { return &**this; }

 private:
  mutable Samples samples_;
  Samples (*make_)() = nullptr;
  mutable std::once_flag once_;
};

struct BodyRules;  // ops/body_rules.h

/// In which operands the op is linear while the others are fixed: in none, in each one, in the
/// first, in the rest, or in all together.
enum class Linearity : std::uint8_t { none, each, first, rest, all };

/// The rules of one op. Equations point to their record, so that ops can be compared by address.
struct OpRecord {
  Field<std::string> name;
  Field<std::string> doc;
  Field<std::string> source;  // where the op is specified
  std::string_view hlo = {};  // the opcode of the HLO instruction that does the same, if any
  Field<AttributeNames> attributes;
  Field<TypeSet> types;
  /// How many operands, from the first on, have these types; the shape rule checks the others. All
  /// of them if it is 0.
  std::size_t num_typed = 0;
  Field<ShapeRule> shape;
  VjpRule vjp;
  BatchRule batch;
  Field<FactorRule> factors;
  Field<Pattern> pattern;
  Field<HostRule> host;
  StableHloRule stablehlo;
  Field<Reference> reference;
  Field<CostRule> cost;
  SampleList samples;
  const BodyRules* bodies = nullptr;  // only for ops with nested functions
  Linearity linearity = Linearity::none;
  AttributeNames optional_attributes = {};  // attributes that equations may also have
  /// Adds the attributes that a text has left out, where they have a usual value.
  void (*add_usual)(Attributes& attributes) = nullptr;
};

/// Runs the op's reference. bf16 operands are widened to f32, and bf16 results are rounded.
std::vector<HostArray> evaluate(const OpRecord& op, const ReferenceContext& context);

/// Whether the equation only rearranges elements of its operand.
inline bool is_view(const Equation& equation) { return *equation.op->pattern == Pattern::view; }

/// Every op, sorted by name.
const std::vector<const OpRecord*>& all_ops();

}  // namespace tessera::ops
