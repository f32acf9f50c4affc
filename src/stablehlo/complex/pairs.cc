#include "stablehlo/complex/pairs.h"

#include <algorithm>
#include <iterator>
#include <unordered_map>

#include "stablehlo/bytecode/scalars.h"
#include "stablehlo/complex/matrices.h"
#include "stablehlo/complex/pair_maker.h"
#include "stablehlo/import/importer.h"

namespace tessera::stablehlo {

namespace {

using BytecodeType = bytecode::Type;
using Operations = std::vector<Operation>;

/// Operations that do the same to each part.
bool is_done_by_parts(std::string_view kind) {
  static constexpr std::string_view kKinds[] = {"add",
                                                "all_gather",
                                                "all_reduce",
                                                "all_to_all",
                                                "broadcast",
                                                "broadcast_in_dim",
                                                "collective_broadcast",
                                                "collective_permute",
                                                "concatenate",
                                                "dynamic_slice",
                                                "dynamic_update_slice",
                                                "gather",
                                                "negate",
                                                "pad",
                                                "reduce",
                                                "reduce_scatter",
                                                "reduce_window",
                                                "reshape",
                                                "reverse",
                                                "scatter",
                                                "sdy.sharding_constraint",
                                                "sdy.sharding_group",
                                                "select",
                                                "select_and_scatter",
                                                "slice",
                                                "subtract",
                                                "transpose"};
  return std::ranges::find(kKinds, kind) != std::end(kKinds);
}

/// Operations on tuples of arrays that may have any body.
bool has_free_body(std::string_view kind) {
  return kind == "reduce" || kind == "reduce_window" || kind == "scatter" || kind == "sort";
}

/// Whether a body adds its arguments or chooses one of them, so that real and imaginary parts do
/// not mix.
bool keeps_parts_apart(const Region& body) {
  return std::ranges::all_of(without_copies(body).operations, [](const Operation& op) {
    const std::string_view kind = kind_of(op);
    return kind == "add" || kind == "return";
  });
}

/// Operations that only pass operands to, and results from, their regions or functions.
bool is_widened(std::string_view kind) {
  static constexpr std::string_view kKinds[] = {"builtin.unrealized_conversion_cast",
                                                "call",
                                                "case",
                                                "func",
                                                "if",
                                                "optimization_barrier",
                                                "return",
                                                "sdy.manual_computation",
                                                "sdy.return",
                                                "while"};
  return std::ranges::find(kKinds, kind) != std::end(kKinds);
}

class PairRewriter {
 public:
  explicit PairRewriter(const bytecode::Module& from) : from_(from), context_{.module = from} {
    to_.producer = from.producer;
    to_.value_types = from.value_types;
  }

  bytecode::Module rewritten() {
    to_.root = from_.root;
    for (Region& region : to_.root.regions) {
      for (Operation& op : region.operations) {
        if (kind_of(op) != "func") continue;
        const bool is_main = text_of(op, "sym_name") == "main";
        for (Region& body : op.regions) body = is_main ? main(body) : widened(body);
      }
    }
    return std::move(to_);
  }

 private:
  bool is_complex(ValueNumber value) const {
    return tessera::stablehlo::is_complex(*from_.value_types[value]);
  }
  bool has_complex(const Operation& op) const {
    const auto is = [&](ValueNumber value) { return is_complex(value); };
    return std::ranges::any_of(op.operands, is) || std::ranges::any_of(op.results, is);
  }
  /// The type of the parts.
  const BytecodeType& real_type(ValueNumber value) {
    const BytecodeType& type = *from_.value_types[value];
    const BytecodeType*& real = real_types_[&type];
    if (real == nullptr) {
      BytecodeType made = type;
      made.types = {type.types[0]->types[0]};
      real = &to_.types.emplace_back(std::move(made));
    }
    return *real;
  }

  Pair new_pair(ValueNumber value) {
    const BytecodeType& type = real_type(value);
    Pair pair;
    for (ValueNumber* part : {&pair.re, &pair.im}) {
      to_.value_types.push_back(&type);
      *part = static_cast<ValueNumber>(to_.value_types.size() - 1);
    }
    return pairs_[value] = pair;
  }
  Pair pair(ValueNumber value, const Operation& op) const {
    const auto found = pairs_.find(value);
    if (found == pairs_.end())
      fail_unsupported(context_, op, "a complex number of another function");
    return found->second;
  }

  /// Both parts of complex values.
  std::vector<ValueNumber> widened(const std::vector<ValueNumber>& values,
                                   const Operation& op) const {
    std::vector<ValueNumber> result;
    for (const ValueNumber value : values) {
      if (!is_complex(value)) {
        result.push_back(value);
        continue;
      }
      const Pair parts = pair(value, op);
      result.insert(result.end(), {parts.re, parts.im});
    }
    return result;
  }
  std::vector<ValueNumber> defined(const std::vector<ValueNumber>& values, const Operation& op) {
    for (const ValueNumber value : values) {
      if (is_complex(value)) new_pair(value);
    }
    return widened(values, op);
  }

  Region widened(const Region& region) {
    Region result = region;
    result.arguments.clear();
    result.argument_locations.clear();
    for (const ValueNumber argument : region.arguments) {
      if (is_complex(argument)) {
        const Pair parts = new_pair(argument);
        result.arguments.insert(result.arguments.end(), {parts.re, parts.im});
      } else {
        result.arguments.push_back(argument);
      }
    }
    result.operations = operations(region.operations);
    return result;
  }

  /// Its arguments and results stay complex.
  Region main(const Region& region) {
    Region result = region;
    result.operations.clear();
    PairMaker first(to_, result.operations, nullptr);
    for (const ValueNumber argument : region.arguments) {
      if (!is_complex(argument)) continue;
      pairs_[argument] = parts_of(argument, first);
    }
    for (const Operation& op : region.operations) {
      if (kind_of(op) != "return") {
        operation(op, result.operations);
        continue;
      }
      Operation last = op;
      PairMaker make(to_, result.operations, op.location);
      for (ValueNumber& value : last.operands) {
        if (!is_complex(value)) continue;
        const Pair parts = pair(value, op);
        value = make.emit("vhlo.complex_v1", {parts.re, parts.im}, *from_.value_types[value]);
      }
      result.operations.push_back(std::move(last));
    }
    return result;
  }

  Operations operations(const Operations& from) {
    Operations result;
    for (const Operation& op : from) operation(op, result);
    return result;
  }

  void operation(const Operation& op, Operations& out) {
    const std::string_view kind = kind_of(op);
    if (is_widened(kind) || !has_complex(op)) return widen(op, out);
    if (kind == "composite") return widen(call_of_decomposition(context_, op), out);
    if (kind == "custom_call") return call_of_host(op, out);
    const bool gives_complex =
        std::ranges::all_of(op.results, [&](ValueNumber value) { return is_complex(value); });
    const bool is_apart = std::ranges::all_of(op.regions, keeps_parts_apart);
    if (has_free_body(kind) && (!gives_complex || !is_apart)) return widen_body(op, out);
    if (is_done_by_parts(kind) && gives_complex) {
      for (const bool is_imaginary : {false, true}) part_of(op, is_imaginary, out);
      return;
    }
    arithmetic(op, kind, out);
  }

  /// The parts become separate arrays, which the body joins together.
  void widen_body(const Operation& op, Operations& out) {
    widen(op, out);
    Operation& made = out.back();
    if (op.regions.size() != 1) fail_unsupported(context_, op, "complex numbers");
    if (joined_by(op.regions[0]) == "multiply") {
      made.attributes.emplace_back(kAssociative, &to_.attributes.emplace_back());
      std::ranges::sort(made.attributes, {}, &bytecode::NamedAttribute::first);
    }
    if (kind_of(op) != "sort") return;
    // The body's two arguments for the same array are adjacent.
    const std::vector<ValueNumber>& from = op.regions[0].arguments;
    std::vector<ValueNumber> ordered;
    for (std::size_t i = 0; i + 1 < from.size(); i += 2) {
      if (!is_complex(from[i])) {
        ordered.insert(ordered.end(), {from[i], from[i + 1]});
        continue;
      }
      const Pair left = pair(from[i], op);
      const Pair right = pair(from[i + 1], op);
      ordered.insert(ordered.end(), {left.re, right.re, left.im, right.im});
    }
    made.regions[0].arguments = std::move(ordered);
  }

  /// The host sees complex numbers.
  void call_of_host(const Operation& op, Operations& out) {
    PairMaker make(to_, out, op.location);
    Operation call = op;
    for (ValueNumber& value : call.operands) {
      if (!is_complex(value)) continue;
      const Pair parts = pair(value, op);
      value = make.emit("vhlo.complex_v1", {parts.re, parts.im}, *from_.value_types[value]);
    }
    out.push_back(std::move(call));
    for (const ValueNumber value : op.results) {
      if (is_complex(value)) pairs_[value] = parts_of(value, make);
    }
  }

  /// The parts of an argument of `main`, or of a result of a host call.
  Pair parts_of(ValueNumber value, PairMaker& make) {
    const BytecodeType& type = real_type(value);
    const ValueNumber re = make.emit("vhlo.real_v1", {value}, type);
    return {re, make.emit("vhlo.imag_v1", {value}, type)};
  }

  void widen(const Operation& op, Operations& out) {
    Operation copy = op;
    copy.operands = widened(op.operands, op);
    copy.results = defined(op.results, op);
    for (Region& region : copy.regions) region = widened(region);
    for (auto& [name, attribute] : copy.properties) {
      if (name == "in_shardings") attribute = widened_shardings(*attribute, op.operands);
      if (name == "out_shardings") attribute = widened_shardings(*attribute, op.results);
    }
    out.push_back(std::move(copy));
  }

  /// Both parts of a value have its sharding.
  const Attribute* widened_shardings(const Attribute& shardings,
                                     const std::vector<ValueNumber>& values) {
    Attribute result = shardings;
    result.items.clear();
    for (std::size_t i = 0; i < shardings.items.size() && i < values.size(); ++i) {
      result.items.insert(result.items.end(), is_complex(values[i]) ? 2 : 1, shardings.items[i]);
    }
    return &to_.attributes.emplace_back(std::move(result));
  }

  using Parts = std::unordered_map<ValueNumber, ValueNumber>;

  /// The operation on the real or the imaginary parts.
  void part_of(const Operation& op, bool is_imaginary, Operations& out) {
    const auto part = [&](const Pair& pair) { return is_imaginary ? pair.im : pair.re; };
    Operation copy = op;
    for (ValueNumber& value : copy.operands) {
      if (is_complex(value)) value = part(pair(value, op));
    }
    for (ValueNumber& value : copy.results) {
      if (is_complex(value)) value = part(pairs_.contains(value) ? pairs_[value] : new_pair(value));
    }
    for (Region& region : copy.regions) region = body_of_part(without_copies(region), op);
    out.push_back(std::move(copy));
  }

  /// A body that adds its arguments or chooses one of them.
  Region body_of_part(const Region& region, const Operation& op) {
    Region result = region;
    Parts parts;
    const auto real = [&](ValueNumber& value) {
      if (!is_complex(value)) return;
      const auto [found, is_new] = parts.try_emplace(value, 0);
      if (is_new) {
        to_.value_types.push_back(&real_type(value));
        found->second = static_cast<ValueNumber>(to_.value_types.size() - 1);
      }
      value = found->second;
    };
    for (ValueNumber& value : result.arguments) real(value);
    for (Operation& inner : result.operations) {
      const std::string_view kind = kind_of(inner);
      if (kind != "add" && kind != "return") {
        fail_unsupported(context_, op, "a body that does more than add complex numbers");
      }
      for (ValueNumber& value : inner.operands) real(value);
      for (ValueNumber& value : inner.results) real(value);
    }
    return result;
  }

  void arithmetic(const Operation& op, std::string_view kind, Operations& out) {
    PairMaker make(to_, out, op.location);
    const auto operand = [&](std::size_t i) -> Pair {
      if (i >= op.operands.size()) fail_unsupported(context_, op, "too few operands");
      const ValueNumber value = op.operands[i];
      if (is_complex(value)) return pair(value, op);
      if (from_.value_types[value]->kind != BytecodeType::Kind::tensor) {
        fail_unsupported(context_, op, "an operand that is not a tensor");
      }
      return {value, value};
    };
    if (op.results.size() != 1) fail_unsupported(context_, op, "complex numbers");
    const ValueNumber result = op.results[0];
    if (kind == "real" || kind == "imag" || kind == "abs") {
      const Pair x = operand(0);
      return alias(result, kind == "abs" ? make.abs(x) : (kind == "real" ? x.re : x.im), make);
    }
    if (kind == "compare") return alias(result, compared(op, operand(0), operand(1), make), make);
    if (kind == "fft") return transform(op, operand(0), make);
    if (!is_complex(result)) fail_unsupported(context_, op, "complex numbers");
    if (kind == "complex") {
      pairs_[result] = {operand(0).re, operand(1).re};
    } else if (kind == "multiply") {
      pairs_[result] = make.mul(operand(0), operand(1));
    } else if (kind == "divide") {
      pairs_[result] = make.div(operand(0), operand(1));
    } else if (kind == "power") {
      pairs_[result] = make.power(operand(0), operand(1));
    } else if (kind == "constant") {
      pairs_[result] = constant(op, make);
    } else if (kind == "cholesky") {
      pairs_[result] = factored(op, operand(0), make);
    } else if (kind == "triangular_solve") {
      pairs_[result] = solved(op, operand(0), operand(1), make);
    } else if (kind == "iota") {
      Operation real = op;
      const ValueNumber numbers = make.new_value(real_type(result));
      real.results = {numbers};
      make.append(std::move(real));
      pairs_[result] = make.real(numbers);
    } else if (kind == "convert") {
      pairs_[result] = converted(op, operand(0), make);
    } else if (kind == "dot_general" || kind == "convolution") {
      pairs_[result] = product(op, operand(0), operand(1), make);
    } else if (PairMaker::has_function(kind)) {
      pairs_[result] = make.function(kind, operand(0));
    } else {
      fail_unsupported(context_, op, "complex numbers");
    }
  }

  /// Gives the result's number to the real value `made`.
  void alias(ValueNumber result, ValueNumber made, PairMaker& make) {
    make.append(
        {.name = "builtin.unrealized_conversion_cast", .operands = {made}, .results = {result}});
  }

  ValueNumber compared(const Operation& op, Pair x, Pair y, PairMaker& make) {
    const std::string_view direction = text_of(op, "comparison_direction");
    if (direction != "EQ" && direction != "NE") {
      fail_unsupported(context_, op, "an ordering of complex numbers");
    }
    const ValueNumber re = make.compare(direction, x.re, y.re);
    const ValueNumber im = make.compare(direction, x.im, y.im);
    return make.binary(direction == "EQ" ? "vhlo.and_v1" : "vhlo.or_v1", re, im);
  }

  Pair constant(const Operation& op, PairMaker& make) {
    const Attribute* value = op.find("value");
    if (value == nullptr || value->kind != Attribute::Kind::tensor) {
      fail_unsupported(context_, op, "a constant that is not a tensor");
    }
    const bytecode::Elements elements(*value, 0);
    const std::int64_t count =
        elements.is_splat() ? std::min<std::int64_t>(1, elements.size()) : elements.size();
    const unsigned width = elements.format().bytes();
    Pair result;
    for (const unsigned part : {0U, 1U}) {
      std::string bytes;
      for (std::int64_t i = 0; i < count; ++i) {
        const std::uint64_t bits = elements.bits(i, part);
        for (unsigned j = 0; j < width; ++j) bytes += static_cast<char>(bits >> (8 * j));
      }
      (part == 0 ? result.re : result.im) =
          make.constant(std::move(bytes), real_type(op.results[0]));
    }
    return result;
  }

  /// From another complex type or from a real one.
  Pair converted(const Operation& op, Pair x, PairMaker& make) {
    const BytecodeType& type = real_type(op.results[0]);
    const auto convert = [&](ValueNumber part) {
      return make.emit("vhlo.convert_v1", {part}, type);
    };
    if (!is_complex(op.operands[0])) return make.real(convert(x.re));
    return PairMaker::both(x, convert);
  }

  /// The operation with both parts of each operand and result that is complex.
  void transform(const Operation& op, Pair x, PairMaker& make) {
    const ValueNumber result = op.results[0];
    Operation parts = op;
    if (is_complex(op.operands[0])) parts.operands = {x.re, x.im};
    if (is_complex(result)) {
      const Pair y = {make.new_value(real_type(result)), make.new_value(real_type(result))};
      parts.results = {y.re, y.im};
      pairs_[result] = y;
    }
    make.append(std::move(parts));
  }

  static bool boolean(const Operation& op, std::string_view name) {
    const Attribute* found = op.find(name);
    return found != nullptr && found->kind == Attribute::Kind::boolean && found->numbers[0] != 0;
  }

  /// `a` must be [batch.., n, n], and `b`, if there is one, [batch.., n, m] or [batch.., m, n].
  void check_matrices(const Operation& op, const Shape& a, const Shape* b, bool is_left) const {
    constexpr std::int64_t kMostRows = std::int64_t{1} << 20;
    const std::size_t rank = a.size();
    bool fits =
        rank >= 2 && a[rank - 1] == a[rank - 2] && a[rank - 1] >= 0 && a[rank - 1] <= kMostRows;
    if (fits && b != nullptr) {
      Shape other = *b;
      fits = other.size() == rank && other[rank - (is_left ? 2 : 1)] == a[rank - 1];
      if (fits) other[rank - 1] = other[rank - 2] = a[rank - 1];
      fits = fits && other == a;
    }
    if (!fits)
      fail_unsupported(context_, op, "matrices that are not square, are too large or do not match");
  }

  Pair factored(const Operation& op, Pair x, PairMaker& make) const {
    check_matrices(op, make.type(x.re).shape, nullptr, true);
    return ComplexMatrices(make).cholesky(x, boolean(op, "lower"));
  }

  Pair solved(const Operation& op, Pair a, Pair b, PairMaker& make) const {
    check_matrices(op, make.type(a.re).shape, &make.type(b.re).shape, boolean(op, "left_side"));
    const std::string_view transpose = text_of(op, "transpose_a");
    if (transpose == "ADJOINT") a.im = make.neg(a.im);
    return ComplexMatrices(make).triangular_solve(
        {.left_side = boolean(op, "left_side"),
         .lower = boolean(op, "lower"),
         .transpose_a = transpose == "ADJOINT" || transpose == "TRANSPOSE",
         .unit_diagonal = boolean(op, "unit_diagonal")},
        a, b);
  }

  Pair product(const Operation& op, Pair x, Pair y, PairMaker& make) {
    const auto of = [&](ValueNumber a, ValueNumber b) {
      Operation real = op;
      real.operands = {a, b};
      real.results = {make.new_value(real_type(op.results[0]))};
      const ValueNumber result = real.results[0];
      make.append(std::move(real));
      return result;
    };
    return {make.sub(of(x.re, y.re), of(x.im, y.im)), make.add(of(x.re, y.im), of(x.im, y.re))};
  }

  const bytecode::Module& from_;
  ModuleContext context_;
  bytecode::Module to_;
  std::unordered_map<const BytecodeType*, const BytecodeType*> real_types_;
  std::unordered_map<ValueNumber, Pair> pairs_;
};

}  // namespace

std::optional<bytecode::Module> with_pairs(const bytecode::Module& module) {
  const auto is = [](const BytecodeType* type) { return is_complex(*type); };
  if (std::ranges::none_of(module.value_types, is)) return std::nullopt;
  return PairRewriter(module).rewritten();
}

}  // namespace tessera::stablehlo
