#include "tests/fuzz/run_sharded.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <limits>

#include <tessera/error.h>

#include "compile/compile.h"
#include "compile/reference/interpret.h"
#include "ops/ops.h"
#include "partition/partition.h"
#include "run/engine.h"

namespace tessera::testing {

namespace {

using ir::Function;
using ops::HostArray;

/// Calls visit(offset in the whole array, offset in the box) for every element of a box.
template <typename Visit>
void for_each_element(const Box& box, const Shape& whole, Visit visit) {
  const std::vector<std::int64_t> strides = row_major_strides(whole);
  const std::int64_t count = num_elements(box.size);
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t rest = i;
    std::int64_t offset = 0;
    for (std::size_t dim = whole.size(); dim-- > 0;) {
      offset += (box.start[dim] + rest % box.size[dim]) * strides[dim];
      rest /= box.size[dim];
    }
    visit(static_cast<std::size_t>(offset), static_cast<std::size_t>(i));
  }
}

std::vector<Layout> layouts_of(const Function& function, const std::vector<ir::ValueId>& ids) {
  std::vector<Layout> layouts;
  for (ir::ValueId id : ids) {
    layouts.emplace_back(function.mesh, function.sharding(id), function.type(id).shape);
  }
  return layouts;
}

std::string element_text(const HostArray& array, std::size_t i) {
  return ops::dispatch(array.type().dtype, [&](auto zero) {
    using T = decltype(zero);
    const T value = array.data<T>()[i];
    if constexpr (detail::kIsHalf<T>) {
      return fmt::format("{} ({:#06x})", float{value}, value.bits());
    } else if constexpr (std::is_same_v<T, float>) {
      return fmt::format("{} ({:#010x})", value, std::bit_cast<std::uint32_t>(value));
    } else {
      return fmt::format("{}", value);
    }
  });
}

/// NaN if only one is NaN or both are not finite.
template <typename T>
double distance(T x, T y) {
  return std::abs(static_cast<double>(x) - static_cast<double>(y));
}

/// The epsilon of the dtype times the largest finite element; 0 for integers.
template <typename T>
double epsilon_of_largest(std::span<const T> elements) {
  double largest = 0.0;
  if constexpr (std::is_floating_point_v<T>) {
    for (const T element : elements) {
      if (std::isfinite(element)) largest = std::max<double>(largest, std::abs(element));
    }
    largest *= static_cast<double>(std::numeric_limits<T>::epsilon());
  }
  return largest;
}

template <typename T>
bool is_close(T x, T y, double max_ulp) {
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
    return ulps_between(x, y) <= max_ulp;
  } else if constexpr (std::is_same_v<T, float16>) {
    constexpr double kUnit = 8192.0;
    constexpr float kLeast = 0x1p-24F;  // the distance of the numbers around zero
    if (ulps_between(x, y) <= (max_ulp > 0.0 ? kUnit : 0.0)) return true;
    return max_ulp > 0.0 && std::abs(float{x} - float{y}) <= kLeast;
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    // Values that differ by a few ulps of f32 may round to neighbouring bf16 values.
    constexpr double kUnit = 65536.0;
    return ulps_between(x, y) <= (max_ulp > 0.0 ? kUnit : 0.0);
  } else {
    return x == y;
  }
}

}  // namespace

run::Tiles scatter(const HostArray& array, const Layout& layout) {
  const std::size_t size = size_bytes(array.type().dtype);
  run::Tiles tiles;
  for (std::int64_t tile = 0; tile < layout.num_tiles(); ++tile) {
    const Box box = layout.box(tile);
    tiles.push_back(
        std::make_shared<run::Buffer>(num_elements(box.size) * static_cast<std::int64_t>(size)));
    for_each_element(box, array.type().shape, [&](std::size_t from, std::size_t to) {
      std::memcpy(tiles.back()->data() + to * size, array.bytes().data() + from * size, size);
    });
  }
  return tiles;
}

HostArray gather(const run::Tiles& tiles, const Layout& layout, DType dtype) {
  HostArray array(Type{dtype, layout.shape()});
  const std::size_t size = size_bytes(dtype);
  for (std::int64_t tile = 0; tile < layout.num_tiles(); ++tile) {
    run::Buffer& buffer = *tiles[static_cast<std::size_t>(tile)];
    for_each_element(layout.box(tile), layout.shape(), [&](std::size_t to, std::size_t from) {
      std::memcpy(array.bytes().data() + to * size, buffer.data() + from * size, size);
    });
  }
  return array;
}

Function without_mesh(const Function& function) {
  const auto change = [](const Function& body) {
    Function result = body;
    result.mesh = Mesh();
    for (ir::Equation& equation : result.equations) {
      if (equation.op != &ops::sharding_constraint_op) continue;
      const std::int64_t rank = result.type(equation.results[0]).rank();
      equation.attributes.set("sharding", replicated_sharding(rank));
    }
    return result;
  };
  return change(ir::with_changed_bodies(function, change));
}

Function with_numerics(const Function& function, Numerics numerics) {
  const auto change = [&](const Function& body) {
    Function result = body;
    result.numerics = numerics;
    return result;
  };
  return change(ir::with_changed_bodies(function, change));
}

DotUnit tested_dot_unit() { return compile::dot_units().back(); }

Arrays run_reference(const Function& function, const Arrays& inputs) {
  return compile::interpret(function, inputs, tested_dot_unit());
}

Arrays run_whole(const Function& function, const Arrays& inputs) {
  Placed placed;
  for (const HostArray& input : inputs) {
    placed.inputs.push_back(replicated_sharding(input.type().rank()));
  }
  return run_sharded(without_mesh(function), placed, inputs);
}

Function partition_verified(const Function& function, const Placed& placed) {
  Function partitioned = partition::partition(function, {.inputs = placed.inputs,
                                                         .is_storage = placed.is_storage,
                                                         .outputs = placed.outputs,
                                                         .output_follows = placed.output_alias,
                                                         .passes = {.verify = true}});
  partition::verify_partitioned(partitioned, "partition");
  return partitioned;
}

std::vector<int> possible_aliases(const Function& partitioned, std::vector<int> output_alias) {
  output_alias.resize(partitioned.outputs.size(), -1);
  for (std::size_t i = 0; i < output_alias.size(); ++i) {
    if (output_alias[i] < 0) continue;
    const ir::ValueId input = partitioned.inputs[static_cast<std::size_t>(output_alias[i])];
    if (partitioned.sharding(input) != partitioned.sharding(partitioned.outputs[i])) {
      output_alias[i] = -1;
    }
  }
  return output_alias;
}

namespace {

/// Each program is compiled for other cache sizes, because these must not change a bit.
CacheSizes odd_caches(const Function& function) {
  const std::size_t number = 3 * function.equations.size() + function.values.size();
  return {.l1 = std::int64_t{1} << (number % 19), .l2 = std::int64_t{1} << (number * 5 % 25)};
}

}  // namespace

Arrays run_partitioned(const Function& partitioned, const std::vector<int>& output_alias,
                       const Arrays& inputs, const Fault& fault) {
  compile::CompileOptions options{.is_donated = std::vector<bool>(partitioned.inputs.size(), false),
                                  .output_alias = possible_aliases(partitioned, output_alias),
                                  .target = {.num_workers = run::Engine::instance().num_threads(),
                                             .caches = odd_caches(partitioned)},
                                  .dot_unit = tested_dot_unit()};
  for (int alias : options.output_alias) {
    if (alias >= 0) options.is_donated[static_cast<std::size_t>(alias)] = true;
  }
  Function function = partitioned;
  if (fault.program) fault.program(function);
  std::shared_ptr<const run::Executable> executable = compile::compile(function, options);
  if (fault.executable) {
    auto changed = std::make_shared<run::Executable>(*executable);
    fault.executable(*changed);
    executable = std::move(changed);
  }
  const std::vector<Layout> input_layouts = layouts_of(partitioned, partitioned.inputs);
  const std::vector<Layout> output_layouts = layouts_of(partitioned, partitioned.outputs);
  std::vector<run::Tiles> tiles;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    tiles.push_back(scatter(inputs[i], input_layouts[i]));
  }
  if (fault.tiles) fault.tiles(tiles);
  const std::vector<run::Tiles> found =
      run::Engine::instance().execute(*executable, std::move(tiles));
  Arrays outputs;
  for (std::size_t i = 0; i < found.size(); ++i) {
    require(static_cast<std::int64_t>(found[i].size()) == output_layouts[i].num_tiles(),
            "the engine gives every tile of an output");
    outputs.push_back(
        gather(found[i], output_layouts[i], partitioned.type(partitioned.outputs[i]).dtype));
  }
  return outputs;
}

Arrays run_sharded(const Function& function, const Placed& placed, const Arrays& inputs) {
  return run_partitioned(partition_verified(function, placed), placed.output_alias, inputs);
}

namespace {

/// The bits of a nonnegative number are its position in the order of all numbers, counted from +0.
/// The position of -0 is one below that of +0.
template <typename Bits, typename T>
double places_between(T x, T y) {
  if (std::isnan(x) || std::isnan(y)) {
    return std::isnan(x) == std::isnan(y) ? 0.0 : std::numeric_limits<double>::infinity();
  }
  const auto place = [](T value) {
    const auto bits = std::bit_cast<Bits>(value);
    return bits >= 0 ? bits : std::numeric_limits<Bits>::min() - bits - 1;
  };
  const Bits a = place(x);
  const Bits b = place(y);
  // The difference fits only if both positions are on the same side of 0.
  if ((a < 0) == (b < 0)) return std::abs(static_cast<double>(a - b));
  return std::abs(static_cast<double>(a) - static_cast<double>(b));
}

}  // namespace

double ulps_between(float x, float y) { return places_between<std::int32_t>(x, y); }
double ulps_between(double x, double y) { return places_between<std::int64_t>(x, y); }

std::optional<std::string> first_difference(const HostArray& found, const HostArray& wanted,
                                            const ErrorBound& bound) {
  if (found.type() != wanted.type()) {
    return fmt::format("type {} and not {}", to_string(found.type()), to_string(wanted.type()));
  }
  return ops::dispatch(found.type().dtype, [&](auto zero) -> std::optional<std::string> {
    using T = decltype(zero);
    const auto x = found.data<T>();
    const auto y = wanted.data<T>();
    const double allowed = bound.max_error * epsilon_of_largest(y);
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (is_close(x[i], y[i], bound.max_ulp)) continue;
      if (allowed > 0.0 && distance(x[i], y[i]) <= allowed) continue;
      return fmt::format("element {} of {} is {} and not {}", i, to_string(found.type()),
                         element_text(found, i), element_text(wanted, i));
    }
    return std::nullopt;
  });
}

std::optional<std::string> first_difference(const Arrays& found, const Arrays& wanted,
                                            const ErrorBound& bound) {
  if (found.size() != wanted.size()) {
    return fmt::format("{} outputs and not {}", found.size(), wanted.size());
  }
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto difference = first_difference(found[i], wanted[i], bound);
    if (difference) return fmt::format("output {}: {}", i, *difference);
  }
  return std::nullopt;
}

}  // namespace tessera::testing
