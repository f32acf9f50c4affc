// Programs with inputs and the outputs that Tessera's engines compute, for other compilers to run.
#pragma once

#include <string>
#include <vector>

#include "stablehlo/stablehlo.h"
#include "tests/fuzz/run_sharded.h"

namespace tessera::testing {

/// How near the outputs must be. Integers and booleans must always be equal, and so must floats
/// that are only moved.
enum class Tolerance : std::uint8_t {
  equal,     // equal bits; all NaNs are equal, and so are both zeros
  rounded,   // the same number, or one beside it: GPUs do not round quotients and roots to the
             // nearest
  function,  // relative to each element
  sum,       // relative to the largest element
  step,      // of a training step in f32, in which errors add up
  half_step  // of one in bf16 or f16
};

struct HloCase {
  std::string name;
  ir::Function function;
  std::vector<bool> is_donated;  // per input; missing entries are false
  Tolerance tolerance;
  std::vector<Type> inputs;  // types of tiles
  std::vector<Type> outputs;
  std::int64_t num_replicas = 1;
  std::string note;            // what to print if the case fails
  std::vector<double> slacks;  // per output: an additional error that is allowed
  /// The inputs of all devices, array after array and device after device.
  std::string input_bytes;
  /// The same for the outputs: tiles and, for each element, whether the device holds it.
  std::string output_bytes;
  std::string held_bytes;
};

/// How much outputs may differ because inputs, and so all intermediate results, are rounded.
struct Spread {
  std::vector<double> slacks;                // per output
  std::vector<std::vector<bool>> is_steady;  // per output and element: whether it may be compared
};

/// `function` as it is, without shardings.
HloCase whole_case(std::string name, const ir::Function& function, const Arrays& inputs,
                   const Arrays& outputs, Tolerance tolerance);
/// `partitioned` on its mesh. Elements beyond the end of a tile of an input are NaN, or -1.
HloCase mesh_case(std::string name, const ir::Function& partitioned, const Arrays& inputs,
                  const Arrays& outputs, Tolerance tolerance, const Spread& spread = {});

/// The module for this compiler.
std::string module_of(const HloCase& c, stablehlo::EmitOptions options);
/// The options that CPU clients need. Products are padded in order to test padding.
inline const stablehlo::EmitOptions kForCpu{
    .donated = {}, .widens_products = true, .pads_products_from = 3};

/// Every sample of every record, as it is and with random shardings on 8 devices.
std::vector<HloCase> sample_cases(std::uint64_t seed);
/// Training steps of the models of examples/ and gradients of attention in bf16 and f16, on one
/// device and on meshes.
std::vector<HloCase> model_cases();
/// Random programs, with the meshes and shardings that the fuzzer gives them.
std::vector<HloCase> program_cases(std::uint64_t seed, std::uint64_t count);

inline constexpr const char* kCaseUsage = "samples|models|programs [SEED [COUNT]]";
/// The cases for command-line arguments of the form kCaseUsage; none for other arguments.
std::vector<HloCase> cases_of(const std::vector<std::string>& arguments);

}  // namespace tessera::testing
