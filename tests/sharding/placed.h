// Runs functions with arguments that are split over a mesh, and compares with one device.
#pragma once

#include <cstring>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include <tessera/engine.h>
#include <tessera/jit.h>
#include <tessera/shardings.h>

namespace tessera::testing {

using Uses = std::vector<std::string>;
using Places = std::vector<P>;

inline Uses kinds_of(const std::vector<CollectiveUse>& rows) {
  Uses kinds;
  for (const CollectiveUse& row : rows) kinds.push_back(fmt::format("{} x{}", row.kind, row.count));
  return kinds;
}

/// The planned collectives. Expects a run to execute just these.
template <typename F>
Uses uses_of(const F& f, const std::vector<Array>& arguments) {
  const auto step = jit([&](const std::vector<Array>& in) { return f(in); });
  const auto lowered = step.lower(arguments);
  step(arguments);
  reset_collective_counts();
  block_until_ready(step(arguments));
  EXPECT_EQ(kinds_of(collective_counts()), kinds_of(lowered.collectives()));
  Uses uses;
  for (const CollectiveUse& row : lowered.collectives()) {
    uses.push_back(fmt::format("{} x{}: {} bytes", row.kind, row.count, row.wire_bytes));
  }
  return uses;
}

inline std::vector<std::byte> bits_of(const Array& x) {
  const auto bytes = [](const auto& values) {
    std::vector<std::byte> result(values.size() * sizeof(values[0]));
    std::memcpy(result.data(), values.data(), result.size());
    return result;
  };
  return x.dtype() == DType::i32 ? bytes(x.to_vector<std::int32_t>()) : bytes(x.to_vector<float>());
}

/// Runs `f` on the mesh with its arguments placed by `specs`. Expects the bits of one device.
template <typename F>
Uses run_placed(const Mesh& mesh, const F& f, std::vector<Array> arguments, const Places& specs) {
  const std::vector<std::byte> wanted = bits_of(f(arguments));
  const use_mesh scope(mesh);
  for (std::size_t i = 0; i < specs.size(); ++i) arguments[i] = device_put(arguments[i], specs[i]);
  EXPECT_EQ(bits_of(f(arguments)), wanted) << to_string(mesh) << " " << to_string(specs[0]);
  const auto step = jit([&](const std::vector<Array>& in) { return f(in); });
  EXPECT_EQ(bits_of(step(arguments)), wanted) << to_string(mesh) << " " << to_string(specs[0]);
  return uses_of(f, arguments);
}

}  // namespace tessera::testing
