// stablehlo_cases FOLDER KIND [SEED [COUNT]]: writes programs in StableHLO with inputs and the
// outputs of Tessera's engines, for run_cases.py to run on another compiler. The kinds:
//
// - samples: every sample of every record, as it is and with random shardings on 8 devices;
// - models: training steps of the models of examples/, on one device and on meshes;
// - programs: COUNT random programs, with the meshes and shardings that the fuzzer gives them.
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <limits>
#include <set>

#include <tessera/error.h>

#include "ops/ops.h"
#include "partition/moves.h"
#include "tests/fuzz/case.h"
#include "tests/fuzz/program.h"
#include "tests/fuzz/whole_numbers.h"
#include "tests/ops/sample_inputs.h"
#include "tests/stablehlo/cases.h"

namespace {

using namespace tessera;           // NOLINT(google-build-using-namespace)
using namespace tessera::testing;  // NOLINT(google-build-using-namespace)
using Sample = tessera::testing::Case;

/// How much more than the inputs intermediate results may be rounded.
constexpr double kSlack = 32;

/// Ops whose floats are rounded as their source says, so that every compiler gives the same.
const std::set<std::string>& exact_ops() {
  static const std::set<std::string> names = {"abs",
                                              "add",
                                              "add_any",
                                              "ceil",
                                              "clamp",
                                              "compare",
                                              "convert",
                                              "div",
                                              "floor",
                                              "max",
                                              "min",
                                              "mul",
                                              "neg",
                                              "rem",
                                              "round",
                                              "sign",
                                              "sqrt",
                                              "sub",
                                              "select",
                                              "cummax",
                                              "cummin",
                                              "sort",
                                              "top_k",
                                              "reduce_max",
                                              "reduce_min",
                                              "is_finite",
                                              "constant",
                                              "iota",
                                              "gather",
                                              "gather_along",
                                              "scatter",
                                              "reduce_window_max",
                                              "reduce_window_min",
                                              "dynamic_slice",
                                              "dynamic_update_slice",
                                              "pad",
                                              "concatenate",
                                              "slice",
                                              "reverse",
                                              "reshape",
                                              "transpose",
                                              "broadcast_in_dim",
                                              "permute",
                                              "bitcast",
                                              "random_bits",
                                              "random_fold_in",
                                              "random_split",
                                              "stop_gradient"};
  return names;
}

bool is_sum(const std::string& name) {
  return name == "conv" || name == "dot_general" || name.starts_with("reduce_") ||
         name.starts_with("attention") || name.starts_with("cum") ||
         name.starts_with("scatter_add") || name == "scan" || name == "while" || name == "cond" ||
         name == "call" || name == "remat" || name == "custom_vjp";
}

Tolerance tolerance_of(const ops::OpRecord& op) {
  if (exact_ops().contains(*op.name) || partition::kind_of(op)) return Tolerance::equal;
  return is_sum(*op.name) ? Tolerance::sum : Tolerance::function;
}

/// Sums of sums may cancel, and any function may follow.
Tolerance tolerance_of(const ir::Function& function) {
  bool is_exact = true;
  fuzz::for_each_equation(function, [&](const ir::Equation& equation, const auto& /*around*/) {
    is_exact &= tolerance_of(*equation.op) == Tolerance::equal;
  });
  return is_exact ? Tolerance::equal : Tolerance::sum;
}

/// Numbers that other compilers treat alike: tiny ones may become zeros there, and where a sum is
/// infinite depends on its order.
Arrays without_extremes(Arrays arrays, bool keeps_infinite) {
  for (ops::HostArray& array : arrays) {
    ops::dispatch(array.type().dtype, [&](auto zero) {
      using T = decltype(zero);
      if constexpr (std::is_floating_point_v<T> || std::is_same_v<T, bfloat16>) {
        for (T& x : array.data<T>()) {
          const auto value = static_cast<float>(x);
          if (!std::isfinite(value) && !keeps_infinite) x = static_cast<T>(1.0F);
          if (std::fpclassify(value) == FP_SUBNORMAL) x = static_cast<T>(0.0F);
        }
      }
    });
  }
  return arrays;
}

void add_samples(std::uint64_t seed, std::vector<HloCase>& cases) {
  const Mesh mesh({{"data", 4}, {"model", 2}});
  for (const Sample& sample : all_cases()) {
    if (!sample.op->stablehlo.has_form()) continue;
    ir::Function function = function_of(*sample.op, sample.sample());
    const Arrays inputs = random_inputs(sample);
    const Arrays outputs = run_reference(function, inputs);
    const Tolerance tolerance = tolerance_of(*sample.op);
    cases.push_back(whole_case(sample.name(), function, inputs, outputs, tolerance));
    if (tolerance == Tolerance::equal) {
      const Arrays special = without_extremes(random_inputs(sample, Values::special), true);
      cases.push_back(whole_case(sample.name() + " with special values", function, special,
                                 run_reference(function, special), tolerance));
    }
    if (partition::kind_of(*sample.op)) continue;
    function = ir::with_mesh(std::move(function), mesh);
    fuzz::Random random(seed * 1000 + cases.size());
    for (int i = 0; i < 2; ++i) {
      Placed placed;
      for (ir::ValueId id : function.inputs) {
        placed.inputs.push_back(fuzz::random_sharding(random, mesh, function.type(id).shape));
      }
      for (ir::ValueId id : function.outputs) {
        placed.outputs.emplace_back();
        placed.outputs.back() = fuzz::random_sharding(random, mesh, function.type(id).shape);
      }
      cases.push_back(mesh_case(fmt::format("{} on a mesh, {}", sample.name(), i),
                                partition_verified(function, placed), inputs, outputs, tolerance));
    }
  }
}

/// Floats moved by about half a unit in the last place.
Arrays perturbed(Arrays arrays, fuzz::Random& random) {
  for (ops::HostArray& array : arrays) {
    ops::dispatch(array.type().dtype, [&](auto zero) {
      using T = decltype(zero);
      if constexpr (std::is_floating_point_v<T> || std::is_same_v<T, bfloat16>) {
        const float unit = std::is_same_v<T, bfloat16> ? 0x1p-8F : 0x1p-23F;
        for (T& x : array.data<T>()) {
          const float factor = 1.0F + unit * static_cast<float>(random.between(-1, 1));
          x = static_cast<T>(static_cast<float>(x) * factor);
        }
      }
    });
  }
  return arrays;
}

/// Adds to the spread of one output how far it has moved.
template <typename T>
void add_change(std::span<const T> moved, std::span<const T> output, double& slack,
                std::vector<bool>& is_steady) {
  for (std::size_t n = 0; n < output.size(); ++n) {
    if constexpr (std::is_floating_point_v<T> || std::is_same_v<T, bfloat16>) {
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

bool has_op(const ir::Function& function, std::string_view name) {
  bool is_found = false;
  fuzz::for_each_equation(function, [&](const ir::Equation& equation, const auto& /*around*/) {
    is_found |= *equation.op->name == name;
  });
  return is_found;
}

void add_fuzzed(std::uint64_t seed, std::uint64_t count, std::vector<HloCase>& cases) {
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
    // Integers read as floats are mostly tiny, and these may become zeros, like constants that are
    // tiny. A remainder jumps where its quotient is nearly whole.
    const bool has_jumps = has_op(partitioned, "bitcast") || has_op(partitioned, "rem");
    if (!has_jumps && !has_tiny_constant(partitioned)) {
      cases.push_back(mesh_case(fmt::format("random program, seed {}", seed + i), partitioned,
                                inputs, outputs, tolerance_of(partitioned),
                                spread_of(whole, inputs, outputs, random)));
    }
    const Arrays numbers = fuzz::whole_numbers(c.inputs);
    const Arrays exact = run_reference(whole, numbers);
    cases.push_back(mesh_case(fmt::format("random program of whole numbers, seed {}", seed + i),
                              partitioned, numbers, exact, Tolerance::equal,
                              whole_spread(function, exact)));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string kind = argc > 2 ? argv[2] : "";
  const std::uint64_t seed = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1;
  const std::uint64_t count = argc > 4 ? std::strtoull(argv[4], nullptr, 10) : 10;
  std::vector<HloCase> cases;
  if (kind == "models") cases = model_cases();
  if (kind == "samples") add_samples(seed, cases);
  if (kind == "programs") add_fuzzed(seed, count, cases);
  if (cases.empty()) {
    fmt::print(stderr, "usage: stablehlo_cases FOLDER samples|models|programs [SEED [COUNT]]\n");
    return 1;
  }
  write_cases(cases, argv[1]);
  fmt::print("{} cases, seed {}\n", cases.size(), seed);
  return 0;
}
