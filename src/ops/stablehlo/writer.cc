#include "ops/stablehlo/writer.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>

#include "ops/host_array.h"
#include "ops/reference/numeric_convert.h"

namespace tessera::ops::hlo {

namespace {

std::string dtype_text(DType dtype) {
  if (dtype == DType::boolean) return "i1";
  const bool is_unsigned = is_integer(dtype) && !is_signed(dtype);
  return is_unsigned ? "ui" + std::string(tessera::name(dtype).substr(1))
                     : std::string(tessera::name(dtype));
}

std::string_view kind_text(DType dtype) {
  if (is_float(dtype)) return "FLOAT";
  return is_signed(dtype) ? "SIGNED" : "UNSIGNED";
}

std::string upper(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(c - 'a' + 'A');
  return result;
}

}  // namespace

std::string type_text(const Type& type) {
  std::string text = "tensor<";
  for (std::int64_t size : type.shape) text += fmt::format("{}x", size);
  return text + dtype_text(type.dtype) + ">";
}

std::string types_text(const std::vector<Type>& types) {
  std::string text;
  for (const Type& type : types) text += (text.empty() ? "" : ", ") + type_text(type);
  return text;
}

std::string types_text(const Values& values) {
  std::string text;
  for (const Value& value : values) text += (text.empty() ? "" : ", ") + type_text(value.type);
  return text;
}

std::string names_text(const Values& values) {
  std::string text;
  for (const Value& value : values) text += (text.empty() ? "" : ", ") + value.name;
  return text;
}

std::string list_text(const Ints& list) { return fmt::format("[{}]", fmt::join(list, ", ")); }

std::string array_text(const Ints& list) {
  if (list.empty()) return "array<i64>";
  return fmt::format("array<i64: {}>", fmt::join(list, ", "));
}

std::string literal(double value, DType dtype) {
  return dispatch(dtype, [&](auto zero) -> std::string {
    using T = decltype(zero);
    const T element = convert_value<T>(value);
    if constexpr (std::is_same_v<T, bool>) {
      return element ? "true" : "false";
    } else if constexpr (std::is_integral_v<T>) {
      return std::to_string(element);
    } else if constexpr (detail::kIsHalf<T>) {
      return fmt::format("0x{:04X}", element.bits());
    } else if constexpr (std::is_same_v<T, float>) {
      return fmt::format("0x{:08X}", std::bit_cast<std::uint32_t>(element));
    } else {
      return fmt::format("0x{:016X}", std::bit_cast<std::uint64_t>(element));
    }
  });
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\' || code < 0x20 || code == 0x7f) {
      result += fmt::format("\\{:02X}", code);
    } else {
      result += c;
    }
  }
  return result + "\"";
}

Value Writer::fresh(Type type) { return {fmt::format("%{}", counter_++), std::move(type)}; }

Value Writer::op(std::string_view code, Type type) { return ops(code, {std::move(type)}).front(); }

Values Writer::ops(std::string_view code, const std::vector<Type>& types) {
  const std::string name = fmt::format("%{}", counter_++);
  const bool is_one = types.size() == 1;
  text_ += std::string(indent_, ' ');
  if (!types.empty()) text_ += is_one ? name + " = " : fmt::format("{}:{} = ", name, types.size());
  text_ += std::string(code) + location_ + "\n";
  Values values;
  for (std::size_t i = 0; i < types.size(); ++i) {
    values.push_back({is_one ? name : fmt::format("{}#{}", name, i), types[i]});
  }
  return values;
}

Value Writer::unary(std::string_view name, const Value& x) {
  return op(fmt::format("stablehlo.{} {} : {}", name, x.name, type_text(x.type)), x.type);
}

Value Writer::unary(std::string_view name, const Value& x, const Type& type) {
  return op(
      fmt::format("stablehlo.{} {} : ({}) -> {}", name, x.name, type_text(x.type), type_text(type)),
      type);
}

Value Writer::binary(std::string_view name, const Value& x, const Value& y) {
  return op(fmt::format("stablehlo.{} {}, {} : {}", name, x.name, y.name, type_text(x.type)),
            x.type);
}

Value Writer::constant(double value, const Type& type) {
  return op(
      fmt::format("stablehlo.constant dense<{}> : {}", literal(value, type.dtype), type_text(type)),
      type);
}

Value Writer::per_device(const Ints& values) {
  if (const auto known = per_device_.find(values); known != per_device_.end()) return known->second;
  const bool is_same = std::all_of(values.begin(), values.end(),
                                   [&](std::int64_t value) { return value == values[0]; });
  Value result;
  if (is_same) {
    result = scalar(static_cast<double>(values[0]), DType::i32);
  } else {
    const Type type{DType::i32, {static_cast<std::int64_t>(values.size())}};
    const Value table = op(
        fmt::format("stablehlo.constant dense<{}> : {}", list_text(values), type_text(type)), type);
    const Value device = op("stablehlo.replica_id : tensor<ui32>", {DType::u32, {}});
    result = reshape(dynamic_slice(table, {device}, {1}), {});
  }
  per_device_.emplace(values, result);
  return result;
}

Value Writer::broadcast(const Value& x, const Ints& dims, Shape shape) {
  const Type type{x.type.dtype, std::move(shape)};
  return op(fmt::format("stablehlo.broadcast_in_dim {}, dims = {} : ({}) -> {}", x.name,
                        list_text(dims), type_text(x.type), type_text(type)),
            type);
}

Value Writer::compare(std::string_view direction, const Value& x, const Value& y) {
  const Type type{DType::boolean, x.type.shape};
  return op(fmt::format("stablehlo.compare {}, {}, {}, {} : ({}, {}) -> {}", upper(direction),
                        x.name, y.name, kind_text(x.type.dtype), type_text(x.type),
                        type_text(y.type), type_text(type)),
            type);
}

Value Writer::select(const Value& condition, const Value& x, const Value& y) {
  return op(fmt::format("stablehlo.select {}, {}, {} : {}, {}", condition.name, x.name, y.name,
                        type_text(condition.type), type_text(x.type)),
            x.type);
}

Value Writer::in_range(const Value& x, std::int64_t low, std::int64_t high) {
  const Value from = compare("ge", x, constant(static_cast<double>(low), x.type));
  const Value below = compare("lt", x, constant(static_cast<double>(high), x.type));
  return binary("and", from, below);
}

Value Writer::convert(const Value& x, DType dtype) {
  if (x.type.dtype == dtype) return x;
  return unary("convert", x, {dtype, x.type.shape});
}

Value Writer::bitcast(const Value& x, DType dtype) {
  if (x.type.dtype == dtype) return x;
  return unary("bitcast_convert", x, {dtype, x.type.shape});
}

Value Writer::reshape(const Value& x, Shape shape) {
  if (x.type.shape == shape) return x;
  return unary("reshape", x, {x.type.dtype, std::move(shape)});
}

Value Writer::transpose(const Value& x, const Ints& permutation) {
  Type type{x.type.dtype, {}};
  for (std::int64_t dim : permutation) {
    type.shape.push_back(x.type.shape[static_cast<std::size_t>(dim)]);
  }
  return op(fmt::format("stablehlo.transpose {}, dims = {} : ({}) -> {}", x.name,
                        list_text(permutation), type_text(x.type), type_text(type)),
            type);
}

Value Writer::iota(std::int64_t dim, DType dtype, Shape shape) {
  const Type type{dtype, std::move(shape)};
  return op(fmt::format("stablehlo.iota dim = {} : {}", dim, type_text(type)), type);
}

Value Writer::slice(const Value& x, const Ints& start, const Ints& limit, Ints stride) {
  if (stride.empty()) stride.assign(start.size(), 1);
  Type type{x.type.dtype, {}};
  std::vector<std::string> ranges;
  for (std::size_t i = 0; i < start.size(); ++i) {
    type.shape.push_back((limit[i] - start[i] + stride[i] - 1) / stride[i]);
    ranges.push_back(fmt::format("{}:{}:{}", start[i], limit[i], stride[i]));
  }
  return op(fmt::format("stablehlo.slice {} [{}] : ({}) -> {}", x.name, fmt::join(ranges, ", "),
                        type_text(x.type), type_text(type)),
            type);
}

Value Writer::slice_dim(const Value& x, std::size_t dim, std::int64_t start, std::int64_t limit) {
  if (start == 0 && limit == x.type.shape[dim]) return x;
  Ints starts(x.type.shape.size(), 0);
  Ints limits = x.type.shape;
  starts[dim] = start;
  limits[dim] = limit;
  return slice(x, starts, limits);
}

Value Writer::pad(const Value& x, const Value& value, const Ints& low, const Ints& high,
                  Ints interior) {
  if (interior.empty()) interior.assign(low.size(), 0);
  Type type = x.type;
  for (std::size_t i = 0; i < low.size(); ++i) {
    type.shape[i] += low[i] + high[i] + std::max<std::int64_t>(type.shape[i] - 1, 0) * interior[i];
  }
  const auto is_zero = [](std::int64_t width) { return width == 0; };
  const bool is_moved = !std::all_of(low.begin(), low.end(), is_zero);
  if (type == x.type && !is_moved) return x;
  return op(fmt::format("stablehlo.pad {}, {}, low = {}, high = {}, interior = {} : ({}, {}) -> {}",
                        x.name, value.name, list_text(low), list_text(high), list_text(interior),
                        type_text(x.type), type_text(value.type), type_text(type)),
            type);
}

Value Writer::concatenate(const Values& parts, std::size_t dim) {
  if (parts.size() == 1) return parts[0];
  Type type = parts[0].type;
  type.shape[dim] = 0;
  for (const Value& part : parts) type.shape[dim] += part.type.shape[dim];
  return op(fmt::format("stablehlo.concatenate {}, dim = {} : ({}) -> {}", names_text(parts), dim,
                        types_text(parts), type_text(type)),
            type);
}

Value Writer::reverse(const Value& x, const Ints& dims) {
  return op(fmt::format("stablehlo.reverse {}, dims = {} : {}", x.name, list_text(dims),
                        type_text(x.type)),
            x.type);
}

Value Writer::dynamic_slice(const Value& x, const Values& starts, Shape sizes) {
  const Type type{x.type.dtype, std::move(sizes)};
  if (starts.empty()) return x;
  return op(fmt::format("stablehlo.dynamic_slice {}, {}, sizes = {} : ({}, {}) -> {}", x.name,
                        names_text(starts), list_text(type.shape), type_text(x.type),
                        types_text(starts), type_text(type)),
            type);
}

Value Writer::dynamic_update_slice(const Value& x, const Value& update, const Values& starts) {
  if (starts.empty()) return update;
  return op(fmt::format("stablehlo.dynamic_update_slice {}, {}, {} : ({}, {}, {}) -> {}", x.name,
                        update.name, names_text(starts), type_text(x.type), type_text(update.type),
                        types_text(starts), type_text(x.type)),
            x.type);
}

Values Writer::zeros_with(std::size_t rank, std::size_t dim, const Value& start) {
  Values starts;
  const bool is_alone = rank == 1;
  const Value zero = is_alone ? Value{} : scalar(0, start.type.dtype);
  for (std::size_t i = 0; i < rank; ++i) starts.push_back(i == dim ? start : zero);
  return starts;
}

Value Writer::dynamic_slice_dim(const Value& x, std::size_t dim, const Value& start,
                                std::int64_t size) {
  Shape sizes = x.type.shape;
  sizes[dim] = size;
  return dynamic_slice(x, zeros_with(sizes.size(), dim, start), sizes);
}

Value Writer::dynamic_update_dim(const Value& x, const Value& update, std::size_t dim,
                                 const Value& start) {
  return dynamic_update_slice(x, update, zeros_with(x.type.shape.size(), dim, start));
}

Value Writer::reduce(const Value& x, const Ints& dims, std::string_view name, double identity) {
  const Value start = scalar(identity, x.type.dtype);
  Type type{x.type.dtype, {}};
  for (std::size_t i = 0; i < x.type.shape.size(); ++i) {
    const bool is_kept =
        std::find(dims.begin(), dims.end(), static_cast<std::int64_t>(i)) == dims.end();
    if (is_kept) type.shape.push_back(x.type.shape[i]);
  }
  Ints sorted = dims;
  std::sort(sorted.begin(), sorted.end());
  return op(fmt::format("stablehlo.reduce({} init: {}) applies stablehlo.{} across dimensions = {} "
                        ": ({}, {}) -> {}",
                        x.name, start.name, name, list_text(sorted), type_text(x.type),
                        type_text(start.type), type_text(type)),
            type);
}

std::string Writer::region(const std::vector<Type>& types,
                           const std::function<Values(Writer&, const Values&)>& body) {
  Writer inner(counter_, indent_ + 4);
  inner.set_location(location_);
  Values arguments;
  std::string head;
  for (const Type& type : types) {
    arguments.push_back(inner.fresh(type));
    head +=
        fmt::format("{}{}: {}", head.empty() ? "" : ", ", arguments.back().name, type_text(type));
  }
  const Values results = body(inner, arguments);
  std::string text = "{\n";
  if (!types.empty()) text += std::string(indent_ + 2, ' ') + "^bb0(" + head + "):\n";
  text += inner.text();
  text += std::string(indent_ + 4, ' ') + "stablehlo.return";
  if (!results.empty()) text += " " + names_text(results) + " : " + types_text(results);
  return text + location_ + "\n" + std::string(indent_, ' ') + "}";
}

std::string Writer::combiner(std::string_view name, DType dtype) {
  const Type scalar_type{dtype, {}};
  return region({scalar_type, scalar_type},
                [&](Writer& w, const Values& xs) { return Values{w.binary(name, xs[0], xs[1])}; });
}

std::string Writer::groups_text(const std::vector<Ints>& groups) {
  std::vector<std::string> lists;
  for (const Ints& group : groups) lists.push_back(list_text(group));
  return fmt::format("dense<[{}]> : tensor<{}x{}xi64>", fmt::join(lists, ", "), groups.size(),
                     groups.empty() ? 0 : groups[0].size());
}

double identity_of(std::string_view name, DType dtype) {
  if (name == "add" || name == "or") return 0;
  if (name == "multiply" || name == "and") return 1;
  const bool is_lowest = name == "maximum";
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (is_float(dtype)) return is_lowest ? -kInfinity : kInfinity;
  return dispatch(dtype, [&](auto zero) {
    using Limits = std::numeric_limits<decltype(zero)>;
    return static_cast<double>(is_lowest ? Limits::lowest() : Limits::max());
  });
}

}  // namespace tessera::ops::hlo
