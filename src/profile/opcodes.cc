#include <algorithm>
#include <iterator>

#include "ops/record.h"
#include "profile/program.h"

namespace tessera::profile {

namespace {

/// Opcodes that say all, sorted: their instructions have no attributes.
constexpr std::string_view kPlain[] = {"abs",
                                       "add",
                                       "and",
                                       "atan2",
                                       "cbrt",
                                       "ceil",
                                       "clamp",
                                       "convert",
                                       "cosine",
                                       "count-leading-zeros",
                                       "divide",
                                       "erf",
                                       "exponential",
                                       "exponential-minus-one",
                                       "floor",
                                       "is-finite",
                                       "log",
                                       "log-plus-one",
                                       "logistic",
                                       "maximum",
                                       "minimum",
                                       "multiply",
                                       "negate",
                                       "not",
                                       "or",
                                       "popcnt",
                                       "power",
                                       "remainder",
                                       "reshape",
                                       "round-nearest-even",
                                       "rsqrt",
                                       "select",
                                       "shift-left",
                                       "shift-right-arithmetic",
                                       "shift-right-logical",
                                       "sign",
                                       "sine",
                                       "sqrt",
                                       "subtract",
                                       "tan",
                                       "tanh",
                                       "xor"};

/// Those whose attributes hlo.cc fills in: op and opcode.
constexpr std::pair<std::string_view, std::string_view> kWithAttributes[] = {
    {"all_gather", "all-gather"},
    {"all_reduce", "all-reduce"},
    {"broadcast_in_dim", "broadcast"},
    {"compare", "compare"},
    {"concatenate", "concatenate"},
    {"constant", "constant"},
    {"dot_general", "dot"},
    {"iota", "iota"},
    {"reduce_max", "reduce"},
    {"reduce_min", "reduce"},
    {"reduce_sum", "reduce"},
    {"reverse", "reverse"},
    {"sharding_constraint", "copy"},
    {"slice", "slice"},
    {"stop_gradient", "copy"},
    {"task", "call"},
    {"transfer", "copy"},
    {"transpose", "transpose"},
};

}  // namespace

std::string hlo_opcode(const ir::Equation& equation) {
  const std::string& name = *equation.op->name;
  for (const auto& [op, opcode] : kWithAttributes) {
    if (op == name) return std::string(opcode);
  }
  constexpr std::string_view kSource = "StableHLO, ";
  const std::string& source = *equation.op->source;
  if (source.starts_with(kSource)) {
    std::string word =
        source.substr(kSource.size(), source.find_first_of(";,", kSource.size()) - kSource.size());
    std::replace(word.begin(), word.end(), '_', '-');
    if (std::binary_search(std::begin(kPlain), std::end(kPlain), word)) return word;
  }
  if (name == "erf") return name;
  return "custom-call";
}

}  // namespace tessera::profile
