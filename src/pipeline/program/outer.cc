#include "pipeline/program/outer.h"

#include <algorithm>

#include <tessera/error.h>

#include "ops/emit.h"
#include "ops/ops.h"
#include "ops/record.h"

namespace tessera::pipeline {

Outer::Outer(const Function& whole)
    : whole_(whole),
      definition_(whole.values.size(), Stages::kNone),
      function_(ir::empty_like(whole)),
      builder_(function_),
      input_groups_(whole.inputs.size()) {
  for (std::size_t i = 0; i < whole.equations.size(); ++i) {
    for (ValueId id : whole.equations[i].results) definition_[id] = i;
  }
  for (ValueId id : whole.inputs) {
    function_.inputs.push_back(views_[id] = function_.add_value(whole.values[id]));
  }
}

bool Outer::is_view_of_input(ValueId value) const {
  while (definition_[value] != Stages::kNone) {
    const Equation& equation = whole_.equations[definition_[value]];
    if (!ops::is_view(equation) || equation.operands.size() != 1) return false;
    value = equation.operands[0];
  }
  return views_.count(value) != 0;
}

void Outer::use_input(std::size_t input, std::int64_t group) {
  std::vector<std::int64_t>& groups = input_groups_[input];
  const auto place = std::lower_bound(groups.begin(), groups.end(), group);
  if (place == groups.end() || *place != group) groups.insert(place, group);
}

ValueId Outer::get(ValueId value, std::int64_t group) {
  const auto found = made_.find(value);
  if (found == made_.end()) return copy_view(value, group);
  const auto here = found->second.find(group);
  if (here != found->second.end()) return here->second;
  const auto [from, id] = *found->second.begin();
  return found->second[group] = transfer(id, from, group);
}

/// No transfer is needed: every group that reads an input has it.
ValueId Outer::copy_view(ValueId value, std::int64_t group) {
  require(is_view_of_input(value), "the values that a task reads are made before it");
  std::vector<ValueId> chain;
  ValueId base = value;
  while (definition_[base] != Stages::kNone) {
    chain.push_back(base);
    base = whole_.equations[definition_[base]].operands[0];
  }
  const auto input = std::find(whole_.inputs.begin(), whole_.inputs.end(), base);
  use_input(static_cast<std::size_t>(input - whole_.inputs.begin()), group);
  ValueId id = views_.at(base);
  for (std::size_t i = chain.size(); i-- > 0;) {
    const auto [place, is_new] = views_.emplace(chain[i], kNoValue);
    if (is_new) {
      Equation view = whole_.equations[definition_[chain[i]]];
      view.operands = {id};
      place->second = function_.add_value(whole_.values[chain[i]]);
      view.results = {place->second};
      function_.equations.push_back(std::move(view));
    }
    id = place->second;
  }
  return id;
}

ValueId Outer::with_sharding(ValueId id, Sharding sharding) {
  function_.values[id].sharding = std::move(sharding);
  return id;
}

ValueId Outer::slice(ValueId stack, std::int64_t index, std::int64_t group) {
  const ValueId from = get(stack, group);
  const auto [place, is_new] = slices_.emplace(std::pair(from, index), kNoValue);
  if (!is_new) return place->second;
  Sharding sharding = function_.sharding(from);
  require(sharding.dims[0].empty(), "arrays that are scanned are whole along dimension 0");
  const ValueId row = with_sharding(ops::slice_dim(builder_, from, 0, index, index + 1), sharding);
  sharding.dims.erase(sharding.dims.begin());
  Shape shape = builder_.type(row).shape;
  shape.erase(shape.begin());
  const ValueId slice = builder_.emit(ops::reshape_op, {{"shape", shape}}, {row});
  return place->second = with_sharding(slice, std::move(sharding));
}

std::vector<ValueId> Outer::task(const ops::TaskParts& parts, ops::FunctionPtr body,
                                 std::vector<ValueId> operands) {
  return ops::task(builder_, parts, std::move(body), std::move(operands));
}

ValueId Outer::transfer(ValueId id, std::int64_t from, std::int64_t to) {
  return ops::transfer(builder_, id, from, to);
}

Function Outer::finish(std::vector<ValueId> outputs) {
  function_.outputs = std::move(outputs);
  return std::move(function_);
}

Function function_of(const Function& whole, const std::vector<std::size_t>& equations,
                     std::vector<ValueId>& inputs, const std::vector<ValueId>& outputs) {
  Function result = ir::empty_like(whole);
  result.name = "task";
  std::map<ValueId, ValueId> known;
  const auto read = [&](ValueId id) {
    const auto [place, is_new] = known.emplace(id, kNoValue);
    if (is_new) {
      place->second = result.add_value(whole.values[id]);
      result.inputs.push_back(place->second);
      inputs.push_back(id);
    }
    return place->second;
  };
  for (std::size_t i : equations) {
    Equation equation = whole.equations[i];
    for (ValueId& id : equation.operands) id = read(id);
    for (ValueId& id : equation.results) id = known[id] = result.add_value(whole.values[id]);
    result.equations.push_back(std::move(equation));
  }
  for (ValueId id : outputs) result.outputs.push_back(read(id));
  return result;
}

}  // namespace tessera::pipeline
