#include "ops/stablehlo/form.h"

#include <algorithm>
#include <fmt/format.h>

#include <tessera/error.h>

#include "base/threefry.h"
#include "ops/rules.h"

namespace tessera::ops {

namespace {

/// The text that stands for `{name}` in a template.
std::string filled(const hlo::FormContext& c, const std::string& name) {
  const auto number_of = [&](std::size_t begin) {
    return begin < name.size() ? static_cast<std::size_t>(std::stoul(name.substr(begin))) : 0;
  };
  if (name == "type") return hlo::type_text(c.results[0]);
  if (name.starts_with("type")) return hlo::type_text(c.x(number_of(4)).type);
  if (std::isdigit(static_cast<unsigned char>(name[0])) != 0) return c.x(number_of(0)).name;
  return hlo::list_text(c.attributes().ints(name));
}

std::string filled_template(const hlo::FormContext& c, const std::string& form) {
  std::string text;
  for (std::size_t i = 0; i < form.size(); ++i) {
    if (form[i] != '{') {
      text += form[i];
      continue;
    }
    const std::size_t end = form.find('}', i);
    text += filled(c, form.substr(i + 1, end - i - 1));
    i = end;
  }
  return text;
}

}  // namespace

StableHloRule not_in_stablehlo(std::string why, std::string cure) {
  StableHloRule rule("");
  rule.why_not_ = std::move(why);
  rule.cure_ = std::move(cure);
  return rule;
}

StableHloRule stablehlo_operands() {
  return [](hlo::FormContext& c) { return c.operands; };
}

std::vector<hlo::Value> StableHloRule::operator()(hlo::FormContext& context) const {
  if (!has_form()) context.fail(why_not_, cure_);
  if (form_) return form_(context);
  return {context.w.op(filled_template(context, template_), context.results[0])};
}

namespace hlo {

void FormContext::fail(const std::string& why, const std::string& cure) const {
  throw UserError({.what = "StableHLO cannot express `" + *equation.op->name + "`",
                   .where = equation.span,
                   .found = why,
                   .wanted = "ops that a single executable can express",
                   .cure = cure});
}

Value FormContext::factor(const Value& x) const {
  return widens_products && is_half(x.type.dtype) ? w.convert(x, DType::f32) : x;
}

Ranges FormContext::ranges(ir::ValueId id, std::size_t dim) const {
  if (tiles == nullptr) return {{0, whole(id)[dim]}};
  return tiles->ranges(function.sharding(id), whole(id), dim);
}

bool FormContext::is_split(ir::ValueId id, std::size_t dim) const {
  if (tiles == nullptr) return false;
  const Sharding& sharding = function.sharding(id);
  return !sharding.dims[dim].empty() || window_of(sharding, dim) != nullptr;
}

Value FormContext::start(ir::ValueId id, std::size_t dim) {
  return w.per_device(starts_of(ranges(id, dim)));
}

Value FormContext::masked_operand(std::size_t i, const Ints& dims, double fill) {
  Value result = x(i);
  for (std::int64_t dim : dims) {
    const Ranges held = ranges(equation.operands[i], at(dim));
    if (is_even(held)) continue;
    result = masked(w, result, at(dim), held, w.scalar(fill, result.type.dtype));
  }
  return result;
}

namespace {

/// A result's or operand's dimension that consists of a single factor.
struct Place {
  ir::ValueId id;
  std::size_t dim;
};

Place place_of(const FormContext& c, const Factors& factors, int factor) {
  const auto look = [&](const Factors::Dims& dims, ir::ValueId id, Place& place) {
    for (std::size_t dim = 0; dim < dims.size(); ++dim) {
      if (dims[dim] != std::vector<int>{factor}) continue;
      place = {id, dim};
      return true;
    }
    return false;
  };
  Place place{ir::kNoValue, 0};
  for (std::size_t i = 0; i < factors.results.size(); ++i) {
    if (look(factors.results[i], c.equation.results[i], place)) return place;
  }
  for (std::size_t i = factors.operands.size(); i-- > 0;) {
    if (look(factors.operands[i], c.equation.operands[i], place)) return place;
  }
  throw InternalError("a factor of a window is not a dimension");
}

/// The first row that each device reads through a window, and how many.
struct Reads {
  bool is_cut = false;
  Ints first;
  std::int64_t size;
};

Reads reads_of(const FormContext& c, const Factors& factors, const OperandWindow& window) {
  const std::size_t count = c.tiles->num_devices();
  Reads reads{.is_cut = c.is_split(c.equation.operands[window.operand], window.dim),
              .first = Ints(count, window.offset),
              .size = window.extent};
  for (const OperandWindow::Term& term : window.terms) {
    const Place place = place_of(c, factors, term.factor);
    reads.is_cut |= c.is_split(place.id, place.dim);
    const Ranges ranges = c.ranges(place.id, place.dim);
    const std::int64_t size = most(ranges);
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t lowest = term.step > 0 ? ranges[i].start : ranges[i].start + size - 1;
      reads.first[i] += term.step * lowest;
    }
    reads.size += std::abs(term.step) * (size - 1);
  }
  return reads;
}

}  // namespace

FormContext::Rows FormContext::rows_of(std::size_t i, const Value* fill) {
  Rows rows{x(i), std::vector<bool>(x(i).type.shape.size(), false)};
  if (tiles == nullptr) return rows;
  const Factors factors = (*equation.op->factors)(
      attributes(), ir::operand_types(function, equation), ir::result_types(function, equation));
  for (const OperandWindow& window : factors.windows) {
    if (window.operand != i || (window.divisor != 1 && fill == nullptr)) continue;
    const Reads reads = reads_of(*this, factors, window);
    if (!reads.is_cut) continue;
    rows.is_cut[window.dim] = true;
    const Ranges held = ranges(equation.operands[i], window.dim);
    rows.x = window.divisor == 1
                 ? rows_from(w, rows.x, window.dim, held, reads.first, reads.size, fill)
                 : spread_rows_from(w, rows.x, window.dim, held,
                                    {.starts = reads.first,
                                     .size = reads.size,
                                     .step = window.divisor,
                                     .fill = *fill});
  }
  return rows;
}

// --- shared forms

StableHloRule reduce_form(const std::string& name) {
  return [name](FormContext& c) -> Values {
    const Ints& dims = c.attributes().ints("dims");
    const double identity = identity_of(name, c.x().type.dtype);
    const Value x = c.masked_operand(0, dims, identity);
    return {c.w.reduce(x, dims, name, identity)};
  };
}

StableHloRule reduce_window_form(const std::string& name) {
  return [name](FormContext& c) -> Values {
    const Value x = c.rows_of(0).x;
    const Value start = c.w.scalar(identity_of(name, x.type.dtype), x.type.dtype);
    return {c.w.op(fmt::format("\"stablehlo.reduce_window\"({}, {}) ({}) {{window_dimensions = {}, "
                               "window_strides = {}}} : ({}, {}) -> {}",
                               x.name, start.name, c.w.combiner(name, x.type.dtype),
                               array_text(c.attributes().ints("window")),
                               array_text(c.attributes().ints("stride")), type_text(x.type),
                               type_text(start.type), type_text(c.results[0])),
                   c.results[0])};
  };
}

StableHloRule cumulative_form(const std::string& name) {
  return [name](FormContext& c) -> Values {
    // Shifted copies are combined, at distances of 1, 2, 4, ...: a window over the whole dimension
    // takes quadratic time on some platforms.
    const std::size_t dim = at(c.attributes().integer("dim"));
    const bool is_reverse = c.attributes().get<bool>("reverse");
    Value x = c.x();
    const std::int64_t size = x.type.shape[dim];
    const Value identity = c.w.scalar(identity_of(name, x.type.dtype), x.type.dtype);
    for (std::int64_t step = 1; step < size; step *= 2) {
      Ints low(x.type.shape.size(), 0);
      Ints high = low;
      (is_reverse ? high : low)[dim] = step;
      const Value kept =
          is_reverse ? c.w.slice_dim(x, dim, step, size) : c.w.slice_dim(x, dim, 0, size - step);
      x = c.w.binary(name, x, c.w.pad(kept, identity, low, high));
    }
    return {x};
  };
}

Values sorted(Writer& w, const Values& xs, std::size_t dim, const Before& before) {
  std::vector<Type> pairs;
  std::vector<Type> types;
  for (const Value& x : xs) {
    types.push_back(x.type);
    pairs.insert(pairs.end(), 2, Type{x.type.dtype, {}});
  }
  const std::string region = w.region(
      pairs, [&](Writer& inner, const Values& values) { return Values{before(inner, values)}; });
  return w.ops(
      fmt::format("\"stablehlo.sort\"({}) ({}) {{dimension = {} : i64, is_stable = true}} : "
                  "({}) -> ({})",
                  names_text(xs), region, dim, types_text(xs), types_text(types)),
      types);
}

Value is_less(Writer& w, const Value& x, const Value& y) {
  Value less = w.compare("lt", x, y);
  if (!is_float(x.type.dtype)) return less;
  const Value is_nan = w.compare("ne", y, y);
  const Value is_last = w.binary("and", is_nan, w.compare("eq", x, x));
  return w.binary("or", less, is_last);
}

std::pair<Value, Value> threefry(Writer& w, const Value& high_key, const Value& low_key,
                                 const Value& high, const Value& low) {
  const Type& type = low.type;
  const auto number = [&](std::uint32_t n) { return w.constant(n, type); };
  const auto rotated = [&](const Value& x, std::uint32_t count) {
    const Value left = w.binary("shift_left", x, number(count));
    return w.binary("or", left, w.binary("shift_right_logical", x, number(32 - count)));
  };
  const Value parity = number(kThreefryParity);
  const Value schedule[] = {high_key, low_key,
                            w.binary("xor", w.binary("xor", high_key, low_key), parity)};
  Value x0 = w.binary("add", high, schedule[0]);
  Value x1 = w.binary("add", low, schedule[1]);
  for (std::uint32_t group = 0; group < 5; ++group) {
    for (int count : kThreefryRotations[group % 2]) {
      x0 = w.binary("add", x0, x1);
      x1 = w.binary("xor", x0, rotated(x1, static_cast<std::uint32_t>(count)));
    }
    x0 = w.binary("add", x0, schedule[(group + 1) % 3]);
    x1 = w.binary("add", x1, schedule[(group + 2) % 3]);
    x1 = w.binary("add", x1, number(group + 1));
  }
  return {x0, x1};
}

}  // namespace hlo

}  // namespace tessera::ops
