#include "tests/stablehlo/tolerances.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "partition/moves.h"

namespace tessera::testing {

namespace {

/// Ops whose floats are rounded as their source says, so that every compiler gives the same.
const std::set<std::string>& exact_ops() {
  static const std::set<std::string> names = {"abs",
                                              "add",
                                              "add_any",
                                              "ceil",
                                              "clamp",
                                              "compare",
                                              "convert",
                                              "floor",
                                              "max",
                                              "min",
                                              "mul",
                                              "neg",
                                              "rem",
                                              "round",
                                              "sign",
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
                                              "scatter_max",
                                              "scatter_min",
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

}  // namespace

Tolerance tolerance_of(const ops::OpRecord& op) {
  if (*op.name == "div" || *op.name == "sqrt") return Tolerance::rounded;
  if (exact_ops().contains(*op.name) || partition::kind_of(op)) return Tolerance::equal;
  return is_sum(*op.name) || is_factorisation(op) ? Tolerance::sum : Tolerance::function;
}

bool is_factorisation(const ops::OpRecord& op) {
  return std::any_of(op.samples->begin(), op.samples->end(),
                     [](const ops::Sample& sample) { return sample.max_error > 0.0; });
}

Arrays without_extremes(Arrays arrays, bool keeps_infinite) {
  for (ops::HostArray& array : arrays) {
    ops::dispatch(array.type().dtype, [&](auto zero) {
      using T = decltype(zero);
      if constexpr (std::is_floating_point_v<T> || detail::kIsHalf<T>) {
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

}  // namespace tessera::testing
