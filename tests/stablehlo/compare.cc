#include "tests/stablehlo/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <vector>

#include "ops/host_array.h"

namespace tessera::testing {

namespace {

/// The elements of one output that a device holds.
struct Elements {
  std::vector<double> found;
  std::vector<double> wanted;
};

Elements elements_of(DType dtype, std::span<const std::byte> found,
                     std::span<const std::byte> wanted, std::span<const char> held) {
  Elements elements;
  ops::dispatch(dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::size_t i = 0; i < held.size(); ++i) {
      if (held[i] == '\0') continue;
      T x;
      T y;
      std::memcpy(&x, found.data() + i * sizeof(T), sizeof(T));
      std::memcpy(&y, wanted.data() + i * sizeof(T), sizeof(T));
      elements.found.push_back(static_cast<double>(x));
      elements.wanted.push_back(static_cast<double>(y));
    }
  });
  return elements;
}

double largest_finite(const std::vector<double>& values) {
  double largest = 0;
  for (const double x : values) {
    if (std::isfinite(x)) largest = std::max(largest, std::fabs(x));
  }
  return largest;
}

/// The allowed error of an element `wanted` of an output whose largest element is `scale`.
double limit_of(Tolerance tolerance, const Type& type, double wanted, double scale) {
  const double relative = type.dtype == DType::bf16  ? 1.6e-2
                          : type.dtype == DType::f16 ? 2e-3
                                                     : 4e-6;
  const bool is_scalar = type.shape.empty();
  switch (tolerance) {
    case Tolerance::equal:
      return 0;
    case Tolerance::rounded:
      return relative / 16 * std::fabs(wanted) + 1e-37;
    case Tolerance::function:
      return relative * std::fabs(wanted) + 1e-37;
    case Tolerance::sum:
      return relative * scale + 1e-37;
    case Tolerance::step:
      return (is_scalar ? 1e-5 : 2e-4) * scale + 1e-7;
    case Tolerance::half_step:
      return (is_scalar ? 1e-3 : 2e-2) * scale + 1e-7;
  }
  return 0;
}

bool is_same(double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); }

/// Integers must be equal. `slack` is an additional error that tolerances other than `equal` allow.
std::optional<std::string> difference(Tolerance tolerance, const Type& type, double slack,
                                      const Elements& elements) {
  if (!is_float(type.dtype)) tolerance = Tolerance::equal;
  const double scale = largest_finite(elements.wanted);
  const double more = tolerance == Tolerance::equal ? 0 : slack;
  std::size_t count = 0;
  std::size_t first = 0;
  for (std::size_t i = 0; i < elements.wanted.size(); ++i) {
    const double x = elements.found[i];
    const double y = elements.wanted[i];
    if (is_same(x, y) || std::fabs(x - y) <= limit_of(tolerance, type, y, scale) + more) continue;
    if (count++ == 0) first = i;
  }
  if (count == 0) return std::nullopt;
  return fmt::format("{} of {} elements differ, the first is {} and not {}", count,
                     elements.wanted.size(), elements.found[first], elements.wanted[first]);
}

}  // namespace

std::optional<std::string> difference(const HloCase& c, std::span<const std::byte> outputs) {
  const auto wanted = std::as_bytes(std::span(c.output_bytes));
  std::size_t at = 0;  // in bytes
  std::size_t at_element = 0;
  for (std::size_t i = 0; i < c.outputs.size(); ++i) {
    const auto count = static_cast<std::size_t>(num_elements(c.outputs[i].shape));
    const std::size_t bytes = count * size_bytes(c.outputs[i].dtype);
    for (std::int64_t device = 0; device < c.num_replicas; ++device) {
      const Elements elements =
          elements_of(c.outputs[i].dtype, outputs.subspan(at, bytes), wanted.subspan(at, bytes),
                      std::span(c.held_bytes).subspan(at_element, count));
      const double slack = c.slacks.empty() ? 0 : c.slacks[i];
      if (const auto problem = difference(c.tolerance, c.outputs[i], slack, elements)) {
        return fmt::format("output {} of device {}: {}", i, device, *problem);
      }
      at += bytes;
      at_element += count;
    }
  }
  return std::nullopt;
}

}  // namespace tessera::testing
