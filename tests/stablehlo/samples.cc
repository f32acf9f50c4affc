#include "partition/moves.h"
#include "tests/fuzz/case.h"
#include "tests/fuzz/program.h"
#include "tests/ops/sample_inputs.h"
#include "tests/stablehlo/tolerances.h"

namespace tessera::testing {

std::vector<HloCase> sample_cases(std::uint64_t seed) {
  std::vector<HloCase> cases;
  const Mesh mesh({{"data", 4}, {"model", 2}});
  for (const Case& sample : all_cases()) {
    if (!sample.op->stablehlo.has_form()) continue;
    ir::Function function = function_of(*sample.op, sample.sample());
    const Arrays inputs = random_inputs(sample);
    const Arrays outputs = run_reference(function, inputs);
    const Tolerance tolerance = tolerance_of(*sample.op);
    cases.push_back(whole_case(sample.name(), function, inputs, outputs, tolerance));
    if (tolerance == Tolerance::equal || tolerance == Tolerance::rounded) {
      const Arrays special = without_extremes(random_inputs(sample, Values::special), true);
      cases.push_back(whole_case(sample.name() + " with special values", function, special,
                                 run_reference(function, special), tolerance));
    }
    if (partition::kind_of(*sample.op)) continue;
    function = ir::with_mesh(std::move(function), mesh);
    fuzz::Random random(seed * 1000 + cases.size());
    Placed placed;
    for (ir::ValueId id : function.inputs) {
      placed.inputs.push_back(fuzz::random_sharding(random, mesh, function.type(id).shape));
    }
    for (ir::ValueId id : function.outputs) {
      placed.outputs.emplace_back();
      placed.outputs.back() = fuzz::random_sharding(random, mesh, function.type(id).shape);
    }
    cases.push_back(mesh_case(sample.name() + " on a mesh", partition_verified(function, placed),
                              inputs, outputs, tolerance));
  }
  return cases;
}

}  // namespace tessera::testing
