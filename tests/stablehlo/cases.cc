#include "tests/stablehlo/cases.h"

#include <cstdlib>
#include <cstring>

#include "ir/text.h"

namespace tessera::testing {

namespace {

using ops::HostArray;

std::vector<Type> types_of(const Arrays& arrays) {
  std::vector<Type> types;
  for (const HostArray& array : arrays) types.push_back(array.type());
  return types;
}

std::string bytes_of(const HostArray& array) {
  const auto bytes = array.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// An array in which no element may reach a result.
HostArray garbage(const Type& type) {
  HostArray array(type);
  std::memset(array.bytes().data(), type.dtype == DType::boolean ? 1 : 0xff, array.bytes().size());
  return array;
}

/// The tile of the device with these digits, and which of its elements the device holds.
struct PaddedTile {
  HostArray array;
  std::string held;
};

PaddedTile padded_tile(const HostArray& whole, const Layout& layout, const AtomDigits& digits,
                       const std::vector<bool>* is_steady) {
  const Box box = layout.box(digits);
  PaddedTile tile{garbage({whole.type().dtype, layout.max_tile_shape()}), {}};
  tile.held.assign(static_cast<std::size_t>(num_elements(tile.array.type().shape)), '\0');
  const std::vector<std::int64_t> from = row_major_strides(whole.type().shape);
  const std::vector<std::int64_t> to = row_major_strides(tile.array.type().shape);
  const std::size_t size = size_bytes(whole.type().dtype);
  const std::int64_t count = num_elements(box.size);
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t rest = i;
    std::size_t source = 0;
    std::size_t target = 0;
    for (std::size_t dim = box.size.size(); dim-- > 0;) {
      const std::int64_t index = rest % box.size[dim];
      rest /= box.size[dim];
      source += static_cast<std::size_t>((box.start[dim] + index) * from[dim]);
      target += static_cast<std::size_t>(index * to[dim]);
    }
    std::memcpy(tile.array.bytes().data() + target * size, whole.bytes().data() + source * size,
                size);
    tile.held[target] = is_steady == nullptr || (*is_steady)[source] ? '\1' : '\0';
  }
  return tile;
}

struct TilesOfAll {
  std::vector<Type> types;
  std::string bytes;
  std::string held;
};

TilesOfAll tiles_of(const ir::Function& function, const std::vector<ir::ValueId>& ids,
                    const Arrays& arrays, const Spread& spread) {
  TilesOfAll all;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const Layout layout(function.mesh, function.sharding(ids[i]), arrays[i].type().shape);
    all.types.push_back({arrays[i].type().dtype, layout.max_tile_shape()});
    const std::int64_t count = function.mesh.axes().empty() ? 1 : function.mesh.num_devices();
    for (std::int64_t device = 0; device < count; ++device) {
      const PaddedTile tile =
          padded_tile(arrays[i], layout, device_digits(function.mesh, device),
                      spread.is_steady.empty() ? nullptr : &spread.is_steady[i]);
      all.bytes += bytes_of(tile.array);
      all.held += tile.held;
    }
  }
  return all;
}

}  // namespace

HloCase whole_case(std::string name, const ir::Function& function, const Arrays& inputs,
                   const Arrays& outputs, Tolerance tolerance) {
  HloCase c{.name = std::move(name),
            .function = function,
            .is_donated = {},
            .tolerance = tolerance,
            .inputs = types_of(inputs),
            .outputs = types_of(outputs),
            .num_replicas = 1,
            .note = ir::print(function),
            .slacks = {},
            .input_bytes = {},
            .output_bytes = {},
            .held_bytes = {}};
  for (const HostArray& array : inputs) c.input_bytes += bytes_of(array);
  for (const HostArray& array : outputs) {
    c.output_bytes += bytes_of(array);
    c.held_bytes += std::string(static_cast<std::size_t>(num_elements(array.type().shape)), '\1');
  }
  return c;
}

HloCase mesh_case(std::string name, const ir::Function& partitioned, const Arrays& inputs,
                  const Arrays& outputs, Tolerance tolerance, const Spread& spread) {
  const TilesOfAll in = tiles_of(partitioned, partitioned.inputs, inputs, {});
  const TilesOfAll out = tiles_of(partitioned, partitioned.outputs, outputs, spread);
  return {.name = std::move(name),
          .function = partitioned,
          .is_donated = {},
          .tolerance = tolerance,
          .inputs = in.types,
          .outputs = out.types,
          .num_replicas = partitioned.mesh.axes().empty() ? 1 : partitioned.mesh.num_devices(),
          .note = ir::print(partitioned),
          .slacks = spread.slacks,
          .input_bytes = in.bytes,
          .output_bytes = out.bytes,
          .held_bytes = out.held};
}

std::string module_of(const HloCase& c, stablehlo::EmitOptions options) {
  options.donated = c.is_donated;
  return stablehlo::emit(c.function, options);
}

std::vector<HloCase> cases_of(const std::vector<std::string>& arguments) {
  const auto number = [&](std::size_t i, std::uint64_t missing) {
    return i < arguments.size() ? std::strtoull(arguments[i].c_str(), nullptr, 10) : missing;
  };
  const std::string kind = arguments.empty() ? "" : arguments[0];
  if (kind == "models") return model_cases();
  if (kind == "samples") return sample_cases(number(1, 1));
  if (kind == "programs") return program_cases(number(1, 1), number(2, 10));
  return {};
}

}  // namespace tessera::testing
