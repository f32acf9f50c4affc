#include "stablehlo/float8/bytes.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "stablehlo/bytecode/scalars.h"
#include "stablehlo/complex/pair_maker.h"
#include "stablehlo/float8/float8_maker.h"
#include "stablehlo/import/importer.h"

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

class ByteRewriter {
 public:
  explicit ByteRewriter(const bytecode::Module& from) : from_(from), context_{.module = from} {
    to_.producer = from.producer;
    to_.value_types = from.value_types;
    for (ValueNumber value = 0; value < to_.value_types.size(); ++value) {
      if (is_float8(value)) to_.value_types[value] = &with_elements(value, scalar_type("ui8"));
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
  bool is_float8(ValueNumber value) const {
    return float8_format(*from_.value_types[value]).kind != bytecode::ScalarKind::none;
  }
  bool has_float8(const Operation& op) const {
    const auto is = [&](ValueNumber value) { return is_float8(value); };
    return std::ranges::any_of(op.operands, is) || std::ranges::any_of(op.results, is);
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
    if (!has_float8(op) || is_kept) {
      Operation copy = op;
      for (Region& region : copy.regions) region = rewritten(region);
      out.push_back(std::move(copy));
      return;
    }
    if (kind == "constant") return constant(op, out);
    if (kind == "composite") return out.push_back(call_of_decomposition(context_, op));
    if (kind == "custom_call") fail_unsupported(context_, op, "floats of 8 bits");
    computed(op, kind == "dot_general" || kind == "dot" || kind == "convolution", out);
  }

  /// The same bytes.
  void constant(const Operation& op, Operations& out) {
    Operation copy = op;
    for (auto& [name, attribute] : copy.properties) {
      if (name != "value") continue;
      Attribute value = *attribute;
      value.type = &with_elements(op.results[0], scalar_type("ui8"));
      attribute = &to_.attributes.emplace_back(std::move(value));
    }
    out.push_back(std::move(copy));
  }

  /// The operation in f32.
  void computed(const Operation& op, bool is_product, Operations& out) {
    PairMaker make(to_, out, op.location);
    Operation copy = op;
    for (ValueNumber& value : copy.operands) {
      if (is_float8(value))
        value = decoded(value, is_product ? factor_type(op) : scalar_type("f32"), make);
    }
    const auto result_in_floats = [&](ValueNumber value) {
      return is_float8(value) || (is_product && element_name(value) != "f32");
    };
    for (ValueNumber& value : copy.results) {
      if (result_in_floats(value)) value = make.new_value(with_elements(value, scalar_type("f32")));
    }
    for (Region& region : copy.regions) region = in_floats(region, op);
    const std::vector<ValueNumber> results = copy.results;
    out.push_back(std::move(copy));
    for (std::size_t i = 0; i < results.size(); ++i) {
      const ValueNumber value = op.results[i];
      if (is_float8(value)) {
        name(value, Float8Maker(make, float8_format(*from_.value_types[value])).encode(results[i]),
             make);
      } else if (results[i] != value) {
        name(value, make.emit("vhlo.convert_v1", {results[i]}, *from_.value_types[value]), make);
      }
    }
  }

  std::string_view element_name(ValueNumber value) const {
    const BytecodeType& type = *from_.value_types[value];
    return type.kind == BytecodeType::Kind::tensor ? type.types[0]->name : "";
  }
  /// bf16, which has all values of floats of 8 bits, unless the other factor has another type.
  const BytecodeType& factor_type(const Operation& op) const {
    for (const ValueNumber value : op.operands) {
      if (!element_name(value).empty() && !is_float8(value))
        return *from_.value_types[value]->types[0];
    }
    return scalar_type("bf16");
  }

  ValueNumber decoded(ValueNumber value, const BytecodeType& element, PairMaker& make) {
    const ValueNumber wide =
        Float8Maker(make, float8_format(*from_.value_types[value])).decode(value);
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
      if (is_float8(value)) to_.value_types[value] = &with_elements(value, scalar_type("f32"));
    };
    std::ranges::for_each(result.arguments, widen);
    for (Operation& inner : result.operations) {
      const std::string_view kind = kind_of(inner);
      std::ranges::for_each(inner.results, widen);
      if (kind == "bitcast_convert" || kind == "custom_call" || kind == "composite")
        fail_unsupported(context_, op, "a body that reads the bits of floats");
      if (kind == "constant" && has_float8(inner)) widen_constant(inner);
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

std::optional<bytecode::Module> with_bytes(const bytecode::Module& module) {
  const auto is = [](const BytecodeType* type) {
    return float8_format(*type).kind != bytecode::ScalarKind::none;
  };
  if (std::ranges::none_of(module.value_types, is)) return std::nullopt;
  return ByteRewriter(module).rewritten();
}

}  // namespace tessera::stablehlo
