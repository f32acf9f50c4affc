#include <cmath>
#include <fmt/format.h>
#include <limits>

#include "ops/ops.h"
#include "tests/fuzz/case.h"
#include "tests/fuzz/program.h"
#include "tests/fuzz/whole_numbers.h"
#include "tests/stablehlo/tolerances.h"

namespace tessera::testing {

namespace {

/// Intermediate results may be rounded this many times as much as the inputs.
constexpr double kSlack = 32;

/// Sums of sums may cancel, and any function may follow.
Tolerance tolerance_of_program(const ir::Function& function) {
  bool is_exact = true;
  fuzz::for_each_equation(function, [&](const ir::Equation& equation, const auto& /*around*/) {
    is_exact &= tolerance_of(*equation.op) == Tolerance::equal;
  });
  return is_exact ? Tolerance::equal : Tolerance::sum;
}

/// The arrays with floats changed by about half a unit in the last place.
Arrays perturbed(Arrays arrays, fuzz::Random& random) {
  for (ops::HostArray& array : arrays) {
    ops::dispatch(array.type().dtype, [&](auto zero) {
      using T = decltype(zero);
      if constexpr (std::is_floating_point_v<T> || detail::kIsHalf<T>) {
        const float unit = std::is_same_v<T, bfloat16>  ? 0x1p-8F
                           : std::is_same_v<T, float16> ? 0x1p-11F
                                                        : 0x1p-23F;
        for (T& x : array.data<T>()) {
          const float factor = 1.0F + unit * static_cast<float>(random.between(-1, 1));
          x = static_cast<T>(static_cast<float>(x) * factor);
        }
      }
    });
  }
  return arrays;
}

/// Updates the spread of one output by how far the output has moved.
template <typename T>
void add_change(std::span<const T> moved, std::span<const T> output, double& slack,
                std::vector<bool>& is_steady) {
  for (std::size_t n = 0; n < output.size(); ++n) {
    if constexpr (std::is_floating_point_v<T> || detail::kIsHalf<T>) {
      const auto x = static_cast<double>(moved[n]);
      const auto y = static_cast<double>(output[n]);
      const bool is_same = x == y || (std::isnan(x) && std::isnan(y));
      if (std::isfinite(x - y)) slack = std::max(slack, kSlack * std::fabs(x - y));
      if (!std::isfinite(x - y) && !is_same) is_steady[n] = false;
    } else if (moved[n] != output[n]) {
      is_steady[n] = false;
    }
  }
}

Spread spread_of(const ir::Function& function, const Arrays& inputs, const Arrays& outputs,
                 fuzz::Random& random) {
  Spread spread;
  for (const ops::HostArray& output : outputs) {
    spread.slacks.push_back(0);
    spread.is_steady.emplace_back(num_elements(output.type().shape), true);
  }
  for (int i = 0; i < 4; ++i) {
    const Arrays moved = run_reference(function, perturbed(inputs, random));
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      ops::dispatch(outputs[k].type().dtype, [&](auto zero) {
        using T = decltype(zero);
        add_change<T>(moved[k].data<T>(), outputs[k].data<T>(), spread.slacks[k],
                      spread.is_steady[k]);
      });
    }
  }
  return spread;
}

/// Only the outputs whose values are the same in whatever order sums are taken.
Spread whole_spread(const ir::Function& function, const Arrays& outputs) {
  const std::vector<bool> is_whole = fuzz::whole_outputs(function);
  Spread spread;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    spread.slacks.push_back(0);
    spread.is_steady.emplace_back(num_elements(outputs[i].type().shape), is_whole[i]);
  }
  return spread;
}

bool has_tiny_constant(const ir::Function& function) {
  bool found = false;
  fuzz::for_each_equation(function, [&](const ir::Equation& equation, const auto& /*around*/) {
    if (*equation.op->name != "constant") return;
    const double value = std::fabs(equation.attributes.get<double>("value"));
    found |= value > 0 && value < static_cast<double>(std::numeric_limits<float>::min());
  });
  return found;
}

/// Whether a small change of the inputs may change results by any amount.
bool has_jumps(const ir::Function& function) {
  bool is_found = false;
  fuzz::for_each_equation(function, [&](const ir::Equation& equation, const auto& /*around*/) {
    const std::string& name = *equation.op->name;
    // Integers read as floats are mostly tiny, and tiny floats may become zeros. A remainder jumps
    // where its quotient is nearly whole. So do the factors of matrices that are nearly singular.
    is_found |= name == "bitcast" || name == "rem" || is_factorisation(*equation.op);
  });
  return is_found;
}

}  // namespace

std::vector<HloCase> program_cases(std::uint64_t seed, std::uint64_t count) {
  std::vector<HloCase> cases;
  for (std::uint64_t i = 0; i < count; ++i) {
    const fuzz::Case c = fuzz::make_case(seed + i);
    const ir::Function function = fuzz::program_of(c);
    const ir::Function partitioned = partition_verified(function, c.placed);
    bool has_form = true;
    fuzz::for_each_equation(partitioned, [&](const ir::Equation& equation, const auto& /*around*/) {
      has_form &= equation.op->stablehlo.has_form();
    });
    const std::int64_t devices =
        partitioned.mesh.axes().empty() ? 1 : partitioned.mesh.num_devices();
    if (!has_form || devices > 8) continue;
    const Arrays inputs = without_extremes(c.inputs, false);
    const ir::Function whole = without_mesh(function);
    const Arrays outputs = run_reference(whole, inputs);
    fuzz::Random random(seed + i);
    // Tiny constants may become zeros too.
    if (!has_jumps(partitioned) && !has_tiny_constant(partitioned)) {
      cases.push_back(mesh_case(fmt::format("random program, seed {}", seed + i), partitioned,
                                inputs, outputs, tolerance_of_program(partitioned),
                                spread_of(whole, inputs, outputs, random)));
    }
    const Arrays numbers = fuzz::whole_numbers(c.inputs);
    const Arrays exact = run_reference(whole, numbers);
    cases.push_back(mesh_case(fmt::format("random program of whole numbers, seed {}", seed + i),
                              partitioned, numbers, exact, Tolerance::equal,
                              whole_spread(function, exact)));
  }
  return cases;
}

}  // namespace tessera::testing
