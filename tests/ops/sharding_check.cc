// Compares an op under shardings of all inputs and outputs with one device.
#include <fmt/format.h>

#include "ir/text.h"
#include "partition/moves.h"
#include "tests/fuzz/run_sharded.h"
#include "tests/ops/conformance.h"

namespace tessera::testing {

namespace {

using ir::Function;
using ir::ValueId;

/// The atoms of each axis of a mesh.
std::vector<AtomList> axes_of(const Mesh& mesh) {
  std::vector<AtomList> axes(mesh.axes().size());
  const std::vector<Atom> atoms = atoms_of(mesh);
  for (std::size_t i = 0; i < atoms.size(); ++i) {
    axes[static_cast<std::size_t>(atoms[i].axis)].push_back(static_cast<AtomId>(i));
  }
  return axes;
}

/// Every sharding by whole axes of an array of rank `rank`, in every order within a dimension.
std::vector<Sharding> all_shardings(const Mesh& mesh, std::int64_t rank) {
  std::vector<Sharding> result = {replicated_sharding(rank)};
  for (const AtomList& axis : axes_of(mesh)) {
    const std::vector<Sharding> without = result;
    for (const Sharding& sharding : without) {
      for (std::size_t dim = 0; dim < sharding.dims.size(); ++dim) {
        Sharding minor = sharding;
        minor.dims[dim].insert(minor.dims[dim].end(), axis.begin(), axis.end());
        result.push_back(minor);
        if (sharding.dims[dim].empty()) continue;
        Sharding major = sharding;
        major.dims[dim].insert(major.dims[dim].begin(), axis.begin(), axis.end());
        result.push_back(major);
      }
    }
  }
  return result;
}

/// Shardings of all inputs of a function: all combinations, or `max_count` drawn at random.
std::vector<Placed> choices(const Function& function, std::size_t max_count,
                            std::mt19937_64& generator) {
  std::vector<std::vector<Sharding>> options;
  double count = 1;
  for (ValueId id : function.inputs) {
    options.push_back(all_shardings(function.mesh, function.type(id).rank()));
    count *= static_cast<double>(options.back().size());
  }
  const bool is_whole = count <= static_cast<double>(max_count);
  std::vector<Placed> result(is_whole ? static_cast<std::size_t>(count) : max_count);
  for (std::size_t i = 0; i < result.size(); ++i) {
    std::size_t rest = i;
    for (const std::vector<Sharding>& list : options) {
      const std::size_t number = is_whole ? rest : static_cast<std::size_t>(generator());
      result[i].inputs.push_back(list[number % list.size()]);
      rest /= list.size();
    }
    for (ValueId id : function.outputs) {
      const std::vector<Sharding> list = all_shardings(function.mesh, function.type(id).rank());
      const std::size_t number = static_cast<std::size_t>(generator());
      result[i].outputs.emplace_back();
      if (number % 2 == 0) result[i].outputs.back() = list[number / 2 % list.size()];
    }
  }
  return result;
}

std::string text_of(const Mesh& mesh, const Placed& placed) {
  std::string text = "mesh " + to_string(mesh) + "\ninputs";
  for (const Sharding& sharding : placed.inputs) text += " <" + to_string(mesh, sharding) + ">";
  text += "\noutputs";
  for (const auto& asked : placed.outputs) {
    text += asked ? " <" + to_string(mesh, *asked) + ">" : " open";
  }
  return text + "\n";
}

}  // namespace

Verdict shardings_are_one_device(Function function, const std::vector<ops::HostArray>& inputs,
                                 const std::vector<ops::HostArray>& wanted,
                                 const ShardingChoices& tried, std::mt19937_64& generator) {
  for (const Mesh& mesh : tried.meshes) {
    function = ir::with_mesh(std::move(function), mesh);
    for (const Placed& placed : choices(function, tried.max_choices, generator)) {
      std::optional<std::string> difference;
      try {
        difference = first_difference(run_sharded(function, placed, inputs), wanted);
      } catch (const std::exception& error) {
        difference = error.what();
      }
      if (difference) return *difference + "\n" + text_of(mesh, placed) + ir::print(function);
    }
  }
  return std::nullopt;
}

bool runs_on_host(const Case& c) { return !partition::kind_of(*c.op); }

Verdict host_is_reference(const Case& c) {
  const Function function = function_of(*c.op, c.sample());
  for (Values values : {Values::ordinary, Values::special}) {
    const Arrays inputs = random_inputs(c, values);
    const auto difference = first_difference(
        run_whole(function, inputs), run_reference(function, inputs), ErrorBound::of(c.sample()));
    if (difference) return *difference + "\n" + ir::print(function);
  }
  return std::nullopt;
}

Verdict shardings_are_one_device(const Case& c, const ShardingChoices& tried) {
  const Function function = function_of(*c.op, c.sample());
  std::mt19937_64 generator = generator_for(c, 1);
  const Arrays inputs = random_inputs(c, Values::special);
  return shardings_are_one_device(function, inputs, run_whole(function, inputs), tried, generator);
}

Verdict collective_keeps_values(const Case& c) {
  const Function function = function_of(*c.op, c.sample());
  const Arrays inputs = random_inputs(c, Values::special);
  return first_difference(run_reference(function, inputs), inputs);
}

}  // namespace tessera::testing
