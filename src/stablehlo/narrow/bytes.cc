#include "stablehlo/narrow/bytes.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <utility>

#include "base/narrow_numbers.h"
#include "stablehlo/bytecode/scalars.h"
#include "stablehlo/complex/pair_maker.h"
#include "stablehlo/import/importer.h"
#include "stablehlo/narrow/float_maker.h"
#include "stablehlo/narrow/integer_maker.h"

namespace tessera::stablehlo {

namespace {

using BytecodeType = bytecode::Type;
using Operations = std::vector<Operation>;

/// Operations that move elements, or pass values to and from regions and functions.
bool is_move(std::string_view kind) {
  static constexpr std::string_view kKinds[] = {"all_gather",
                                                "all_to_all",
                                                "bitcast_convert",
                                                "broadcast",
                                                "broadcast_in_dim",
                                                "builtin.unrealized_conversion_cast",
                                                "call",
                                                "case",
                                                "collective_broadcast",
                                                "collective_permute",
                                                "concatenate",
                                                "dynamic_slice",
                                                "dynamic_update_slice",
                                                "func",
                                                "gather",
                                                "get_dimension_size",
                                                "get_tuple_element",
                                                "if",
                                                "optimization_barrier",
                                                "pad",
                                                "reshape",
                                                "return",
                                                "reverse",
                                                "sdy.manual_computation",
                                                "sdy.return",
                                                "sdy.sharding_constraint",
                                                "sdy.sharding_group",
                                                "select",
                                                "slice",
                                                "transpose",
                                                "while"};
  return std::ranges::find(kKinds, kind) != std::end(kKinds);
}

/// Whether a body chooses one of its arguments without looking at them.
bool chooses(const Region& body) {
  return std::ranges::all_of(without_copies(body).operations,
                             [](const Operation& op) { return kind_of(op) == "return"; });
}

/// Whether the results of a body depend only on the low bits of its values, or are among them, so
/// that it may compute in bytes and its last result be wrapped.
bool may_wrap_last(const Region& body) {
  static constexpr std::string_view kKinds[] = {"add", "and",      "maximum", "minimum",
                                                "or",  "multiply", "xor"};
  const std::vector<Operation> operations = without_copies(body).operations;
  return operations.size() == 2 &&
         std::ranges::find(kKinds, kind_of(operations[0])) != std::end(kKinds);
}

class ByteRewriter {
 public:
  explicit ByteRewriter(const bytecode::Module& from) : from_(from), context_{.module = from} {
    to_.producer = from.producer;
    to_.value_types = from.value_types;
    for (ValueNumber value = 0; value < to_.value_types.size(); ++value) {
      if (is_narrow(value)) to_.value_types[value] = &with_elements(value, byte_of(value));
    }
  }

  bytecode::Module rewritten() {
    to_.root = from_.root;
    for (Region& region : to_.root.regions) {
      for (Operation& op : region.operations) {
        for (Region& body : op.regions) body = rewritten(body);
      }
    }
    return std::move(to_);
  }

 private:
  bool is_float(ValueNumber value) const {
    return narrow_float_format(*from_.value_types[value]).kind != bytecode::ScalarKind::none;
  }
  bytecode::ScalarFormat integer_format(ValueNumber value) const {
    return narrow_integer_format(*from_.value_types[value]);
  }
  bool is_integer(ValueNumber value) const {
    return integer_format(value).kind != bytecode::ScalarKind::none;
  }
  /// Of values that have less than a byte: the integers that their bits are.
  bytecode::ScalarFormat bits_format(ValueNumber value) const {
    const bytecode::ScalarFormat format = narrow_float_format(*from_.value_types[value]);
    if (format.kind == bytecode::ScalarKind::none || format.bits >= 8) return integer_format(value);
    return {.kind = bytecode::ScalarKind::unsigned_integer, .bits = format.bits};
  }
  bool is_part_of_byte(ValueNumber value) const {
    return bits_format(value).kind != bytecode::ScalarKind::none;
  }
  bool is_narrow(ValueNumber value) const { return is_float(value) || is_integer(value); }
  using Test = bool (ByteRewriter::*)(ValueNumber) const;
  /// Whether an operand or a result is such a value.
  bool has(const Operation& op, Test test) const {
    const auto is = [&](ValueNumber value) { return (this->*test)(value); };
    return std::ranges::any_of(op.operands, is) || std::ranges::any_of(op.results, is);
  }
  const BytecodeType& byte_of(ValueNumber value) const {
    const bool is_signed = integer_format(value).kind == bytecode::ScalarKind::integer;
    return scalar_type(is_signed ? "i8" : "ui8");
  }
  /// The type of a value with other elements.
  const BytecodeType& with_elements(ValueNumber value, const BytecodeType& element) {
    const BytecodeType& type = *from_.value_types[value];
    const BytecodeType*& made = made_types_[{&type, &element}];
    if (made == nullptr) {
      BytecodeType copy = type;
      copy.types = {&element};
      made = &to_.types.emplace_back(std::move(copy));
    }
    return *made;
  }

  Region rewritten(const Region& region) {
    Region result = region;
    result.operations.clear();
    for (const Operation& op : region.operations) operation(op, result.operations);
    return result;
  }

  void operation(const Operation& op, Operations& out) {
    const std::string_view kind = kind_of(op);
    const bool is_kept =
        is_move(kind) || (kind == "scatter" && std::ranges::all_of(op.regions, chooses));
    if (kind == "bitcast_convert" && has(op, &ByteRewriter::is_part_of_byte))
      return bitcast(op, out);
    if (!has(op, &ByteRewriter::is_narrow) || is_kept) {
      Operation copy = op;
      for (Region& region : copy.regions) region = rewritten(region);
      out.push_back(std::move(copy));
      return;
    }
    if (kind == "constant" && op.results.size() == 1) return constant(op, out);
    if (kind == "composite") return out.push_back(call_of_decomposition(context_, op));
    if (kind == "custom_call" && text_of(op, "call_target_name") == kHostCall)
      return host_call(op, out);
    if (kind == "custom_call") fail_unsupported(context_, op, "numbers of 8 or fewer bits");
    computed(op, out);
  }

  void constant(const Operation& op, Operations& out) {
    Operation copy = op;
    for (auto& [name, attribute] : copy.properties) {
      if (name != "value") continue;
      Attribute value = *attribute;
      value.type = to_.value_types[op.results[0]];
      if (const bytecode::ScalarFormat format = bits_format(op.results[0]);
          format.kind != bytecode::ScalarKind::none) {
        std::string bytes(value.text);
        const bool is_signed = format.kind == bytecode::ScalarKind::integer;
        for (char& byte : bytes) {
          byte =
              static_cast<char>(low_bits(static_cast<std::uint8_t>(byte), format.bits, is_signed));
        }
        value.text = to_.texts.emplace_back(std::move(bytes));
      }
      attribute = &to_.attributes.emplace_back(std::move(value));
    }
    out.push_back(std::move(copy));
  }

  /// The function gets and returns the bytes.
  void host_call(const Operation& op, Operations& out) {
    PairMaker make(to_, out, op.location);
    Operation copy = op;
    for (ValueNumber& value : copy.results) {
      if (is_part_of_byte(value)) value = make.new_value(*to_.value_types[value]);
    }
    const std::vector<ValueNumber> results = copy.results;
    out.push_back(std::move(copy));
    for (std::size_t i = 0; i < results.size(); ++i) {
      const ValueNumber value = op.results[i];
      if (is_part_of_byte(value))
        name(value, IntegerMaker(make, bits_format(value)).wrapped(results[i]), make);
    }
  }

  /// The operation in f32 or on bytes.
  void computed(const Operation& op, Operations& out) {
    const std::string_view kind = kind_of(op);
    const bool has_floats = has(op, &ByteRewriter::is_float);
    const bool is_product =
        has_floats && (kind == "dot_general" || kind == "dot" || kind == "convolution");
    PairMaker make(to_, out, op.location);
    Operation copy = op;
    for (ValueNumber& value : copy.operands) {
      if (is_float(value))
        value = decoded(value, is_product ? factor_type(op) : scalar_type("f32"), make);
    }
    read_low_bits(op, copy, make);
    for (ValueNumber& value : copy.results) {
      if (is_float(value) || (is_product && name_of_elements(value) != "f32")) {
        value = make.new_value(with_elements(value, scalar_type("f32")));
      } else if (is_integer(value)) {
        value = make.new_value(*to_.value_types[value]);
      }
    }
    for (Region& region : copy.regions) {
      if (has_floats) {
        region = in_floats(region, op);
      } else if (!may_wrap_last(region)) {
        region = rewritten(region);
      }
    }
    const std::vector<ValueNumber> results = copy.results;
    out.push_back(std::move(copy));
    for (std::size_t i = 0; i < results.size(); ++i) finish(op, op.results[i], results[i], make);
  }

  /// Wraps the first operand if the operation reads its highest bits.
  void read_low_bits(const Operation& op, Operation& copy, PairMaker& make) const {
    if (op.operands.empty() || !is_integer(op.operands[0])) return;
    const std::string_view kind = kind_of(op);
    IntegerMaker integers(make, integer_format(op.operands[0]));
    ValueNumber& first = copy.operands[0];
    if (kind == "shift_right_logical" || kind == "popcnt" || kind == "count_leading_zeros")
      first = integers.as_unsigned(first);
    if (kind == "shift_right_arithmetic") first = integers.as_signed(first);
  }

  /// Makes a value of the old module from a result in f32 or bytes.
  void finish(const Operation& op, ValueNumber value, ValueNumber result, PairMaker& make) const {
    if (is_float(value)) {
      result = FloatMaker(make, narrow_float_format(*from_.value_types[value])).encode(result);
    } else if (is_integer(value)) {
      IntegerMaker integers(make, integer_format(value));
      if (kind_of(op) == "count_leading_zeros") result = integers.leading_zeros(result);
      result = integers.wrapped(result);
    } else if (result != value) {
      result = make.emit("vhlo.convert_v1", {result}, *from_.value_types[value]);
    }
    if (result != value) name(value, result, make);
  }

  /// 0 if the value has no elements that are integers or floats.
  unsigned bits_of(ValueNumber value) const {
    return bytecode::format_of(name_of_elements(value)).bits;
  }

  /// Whether the elements of `wide` are made of those of `narrow` along its last dimension.
  bool are_words(ValueNumber wide, ValueNumber narrow) const {
    std::vector<std::int64_t> shape = from_.value_types[wide]->shape;
    const unsigned count = bits_of(wide) / bits_of(narrow);
    if (count > 1) shape.push_back(count);
    return shape == from_.value_types[narrow]->shape;
  }

  /// A bitcast to or from numbers of 2 or 4 bits.
  void bitcast(const Operation& op, Operations& out) {
    const auto need = [&](bool is_met) {
      if (!is_met) fail_unsupported(context_, op, "these types");
    };
    need(op.operands.size() == 1 && op.results.size() == 1);
    PairMaker make(to_, out, op.location);
    const ValueNumber from = op.operands[0], to = op.results[0];
    const unsigned from_bits = bits_of(from), to_bits = bits_of(to);
    const unsigned word_bits = std::max({from_bits, to_bits, 8U});
    need(std::min(from_bits, to_bits) > 1 && std::has_single_bit(word_bits) && word_bits <= 64);
    need(from_bits > to_bits ? are_words(from, to) : are_words(to, from));
    const BytecodeType& word = scalar_type("ui" + std::to_string(word_bits));
    const auto cast = [&](ValueNumber x, const BytecodeType& element) {
      return make.emit("vhlo.bitcast_convert_v1", {x}, make.tensor(make.type(x).shape, element));
    };
    ValueNumber result = from;
    if (from_bits < to_bits) {
      result = IntegerMaker(make, bits_format(from)).joined(from, word);
    } else if (from_bits > to_bits) {
      result = IntegerMaker(make, bits_format(to))
                   .parts(cast(from, word), from_bits / to_bits, byte_of(to));
    }
    result = cast(result, *to_.value_types[to]->types[0]);
    if (is_part_of_byte(to)) result = IntegerMaker(make, bits_format(to)).wrapped(result);
    name(to, result, make);
  }

  std::string_view name_of_elements(ValueNumber value) const {
    return element_name(*from_.value_types[value]);
  }
  /// bf16, which has all values of these floats, unless the other factor has another type.
  const BytecodeType& factor_type(const Operation& op) const {
    for (const ValueNumber value : op.operands) {
      if (!name_of_elements(value).empty() && !is_float(value))
        return *from_.value_types[value]->types[0];
    }
    return scalar_type("bf16");
  }

  ValueNumber decoded(ValueNumber value, const BytecodeType& element, PairMaker& make) {
    const ValueNumber wide =
        FloatMaker(make, narrow_float_format(*from_.value_types[value])).decode(value);
    if (element.name == "f32") return wide;
    return make.emit("vhlo.convert_v1", {wide}, with_elements(value, element));
  }

  /// Gives the number of a value of the old module to `made`.
  static void name(ValueNumber value, ValueNumber made, PairMaker& make) {
    make.append(
        {.name = "builtin.unrealized_conversion_cast", .operands = {made}, .results = {value}});
  }

  /// A body whose values are f32 instead.
  Region in_floats(const Region& region, const Operation& op) {
    Region result = region;
    const auto widen = [&](ValueNumber value) {
      if (is_float(value)) to_.value_types[value] = &with_elements(value, scalar_type("f32"));
    };
    std::ranges::for_each(result.arguments, widen);
    for (Operation& inner : result.operations) {
      const std::string_view kind = kind_of(inner);
      std::ranges::for_each(inner.results, widen);
      if (kind == "bitcast_convert" || kind == "custom_call" || kind == "composite" ||
          has(inner, &ByteRewriter::is_integer))
        fail_unsupported(context_, op, "a body that does more than compute with these floats");
      if (kind == "constant" && has(inner, &ByteRewriter::is_float)) widen_constant(inner);
      for (Region& nested : inner.regions) nested = in_floats(nested, op);
    }
    return result;
  }

  void widen_constant(Operation& op) {
    for (auto& [name, attribute] : op.properties) {
      if (name != "value") continue;
      const bytecode::Elements elements(*attribute, 0);
      const std::int64_t count =
          elements.is_splat() ? std::min<std::int64_t>(1, elements.size()) : elements.size();
      std::string bytes;
      for (std::int64_t i = 0; i < count; ++i) {
        const auto value =
            static_cast<float>(bytecode::float_value(elements.format(), elements.bits(i)));
        char parts[sizeof(value)];
        std::memcpy(parts, &value, sizeof(value));
        bytes.append(parts, sizeof(value));
      }
      to_.texts.push_back(std::move(bytes));
      Attribute wide = *attribute;
      wide.text = to_.texts.back();
      wide.type = &with_elements(op.results[0], scalar_type("f32"));
      attribute = &to_.attributes.emplace_back(std::move(wide));
    }
  }

  const bytecode::Module& from_;
  ModuleContext context_;
  bytecode::Module to_;
  std::map<std::pair<const BytecodeType*, const BytecodeType*>, const BytecodeType*> made_types_;
};

}  // namespace

std::string_view narrow_name(const BytecodeType& type) {
  const bool is_narrow = narrow_float_format(type).kind != bytecode::ScalarKind::none ||
                         narrow_integer_format(type).kind != bytecode::ScalarKind::none;
  return is_narrow ? element_name(type) : std::string_view();
}

std::optional<bytecode::Module> with_bytes(const bytecode::Module& module) {
  const auto is = [](const BytecodeType* type) { return !narrow_name(*type).empty(); };
  if (std::ranges::none_of(module.value_types, is)) return std::nullopt;
  return ByteRewriter(module).rewritten();
}

}  // namespace tessera::stablehlo
