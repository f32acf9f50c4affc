#include "compile/reference/runnable.h"

#include "compile/reference/gather.h"
#include "compile/reference/interpret.h"

namespace tessera::compile {

std::vector<ops::HostArray> gather_all(const std::vector<run::PlacementPtr>& placements,
                                       const std::vector<run::Tiles>& inputs) {
  static const run::CollectiveLabel label{
      .kind = "gather", .op = "the reference engine", .span = {}};
  std::vector<ops::HostArray> arrays;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    ops::HostArray& array = arrays.emplace_back(placements[i]->type);
    if (inputs[i].empty()) continue;
    run::gather({placements[i], inputs[i], nullptr}, array.bytes(), label);
  }
  return arrays;
}

std::vector<run::Tiles> ReferenceRunnable::execute(std::vector<run::Tiles>& inputs,
                                                   const std::function<void()>& on_begin) const {
  std::vector<ops::HostArray> arrays = gather_all(inputs_, inputs);
  on_begin();
  const std::vector<ops::HostArray> results = interpret(traced_, std::move(arrays), dot_unit_);
  std::vector<run::Tiles> outputs;
  for (std::size_t i = 0; i < results.size(); ++i) {
    outputs.push_back(run::cut(results[i].bytes(), *outputs_[i]));
  }
  return outputs;
}

}  // namespace tessera::compile
