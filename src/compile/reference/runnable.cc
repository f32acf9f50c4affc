#include "compile/reference/runnable.h"

#include "compile/reference/interpret.h"

namespace tessera::compile {

std::vector<run::Tiles> ReferenceRunnable::execute(std::vector<run::Tiles>& inputs,
                                                   const std::function<void()>& on_begin) const {
  static const run::CollectiveLabel label{
      .kind = "gather", .op = "the reference engine", .span = {}};
  std::vector<ops::HostArray> arrays;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    ops::HostArray& array = arrays.emplace_back(inputs_[i]->type);
    run::gather({inputs_[i], inputs[i], nullptr}, array.bytes(), label);
  }
  on_begin();
  const std::vector<ops::HostArray> results = interpret(traced_, std::move(arrays), dot_unit_);
  std::vector<run::Tiles> outputs;
  for (std::size_t i = 0; i < results.size(); ++i) {
    outputs.push_back(run::cut(results[i].bytes(), *outputs_[i]));
  }
  return outputs;
}

}  // namespace tessera::compile
