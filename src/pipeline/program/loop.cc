// Makes the loop over microbatches that pipeline() cuts into tasks.
#include <unordered_map>

#include "ops/control/control.h"
#include "ops/emit.h"
#include "ops/ops.h"
#include "pipeline/pipeline.h"

namespace tessera::pipeline {

namespace {

using ir::Function;
using ir::ValueId;

/// The equations that add up cotangents, by result.
using CotangentSums = std::unordered_map<ValueId, const ir::Equation*>;

CotangentSums cotangent_sums(const Function& function) {
  CotangentSums sums;
  for (const ir::Equation& equation : function.equations) {
    if (equation.op == &ops::add_any_op) sums.emplace(equation.results[0], &equation);
  }
  return sums;
}

/// Appends the terms of a sum of cotangents, beginning with that of the first use. A value that is
/// not such a sum is appended itself.
void append_uses(const CotangentSums& sums, ValueId value, std::vector<ValueId>& uses) {
  const auto made = sums.find(value);
  if (made == sums.end()) {
    uses.push_back(value);
    return;
  }
  // The backward pass adds cotangents from the last use to the first.
  append_uses(sums, made->second->operands[1], uses);
  append_uses(sums, made->second->operands[0], uses);
}

/// An output: the terms that are accumulated, or the one value that is stacked.
struct Result {
  Joined joined;
  std::vector<ValueId> terms;  // of the function of a microbatch
  bool is_sum() const { return joined.how == Joined::How::sum; }
};

class Loop {
 public:
  Loop(const Function& microbatch, const std::vector<Joined>& joined, std::size_t num_slices)
      : microbatch_(microbatch), num_slices_(num_slices) {
    const CotangentSums sums = cotangent_sums(microbatch);
    for (std::size_t i = 0; i < joined.size(); ++i) {
      Result result{.joined = joined[i], .terms = {}};
      if (result.is_sum()) {
        append_uses(sums, microbatch.outputs[i], result.terms);
      } else {
        result.terms = {microbatch.outputs[i]};
      }
      results_.push_back(std::move(result));
    }
  }

  std::vector<ValueId> emit(ir::Builder& b, const std::vector<ValueId>& batches,
                            const std::vector<ValueId>& captured) const {
    ops::ScanParts parts{.length = b.type(batches.at(0)).shape.at(0),
                         .num_consts = captured.size(),
                         .are_microbatches = true};
    std::vector<ValueId> operands = captured;
    for_terms(true, [&](ValueId term) {
      operands.push_back(ops::full(b, 0.0, microbatch_.type(term)));
      ++parts.num_carry;
    });
    operands.insert(operands.end(), batches.begin(), batches.end());
    const std::vector<ValueId> results = ops::scan(b, parts, body(), operands);
    return put_together(b, results, parts.num_carry);
  }

 private:
  template <typename F>
  void for_terms(bool are_sums, const F& f) const {
    for (const Result& result : results_) {
      if (result.is_sum() != are_sums) continue;
      for (ValueId term : result.terms) f(term);
    }
  }

  /// (captured, sums so far, slices) -> (sums, values to stack)
  ops::FunctionPtr body() const {
    Function terms = microbatch_;
    terms.outputs.clear();
    for_terms(true, [&](ValueId term) { terms.outputs.push_back(term); });
    const std::size_t num_sums = terms.outputs.size();
    for_terms(false, [&](ValueId term) { terms.outputs.push_back(term); });
    Function result = ir::empty_like(terms);
    result.name = "microbatch";
    ir::Builder b(result);
    const auto add_inputs = [&](std::size_t first, std::size_t last) {
      std::vector<ValueId> ids;
      for (std::size_t i = first; i < last; ++i) {
        ids.push_back(b.add_input(Type(terms.type(terms.inputs[i]))));
      }
      return ids;
    };
    const std::vector<ValueId> captured = add_inputs(num_slices_, terms.inputs.size());
    std::vector<ValueId> sums;
    for (std::size_t i = 0; i < num_sums; ++i) {
      sums.push_back(b.add_input(Type(terms.type(terms.outputs[i]))));
    }
    std::vector<ValueId> arguments = add_inputs(0, num_slices_);
    arguments.insert(arguments.end(), captured.begin(), captured.end());
    std::vector<ValueId> outputs = b.inline_function(ir::without_dead_code(terms), arguments);
    for (std::size_t i = 0; i < num_sums; ++i) outputs[i] = ops::add(b, sums[i], outputs[i]);
    b.set_outputs(std::move(outputs));
    return std::make_shared<const Function>(std::move(result));
  }

  std::vector<ValueId> put_together(ir::Builder& b, const std::vector<ValueId>& results,
                                    std::size_t num_sums) const {
    std::vector<ValueId> outputs;
    std::size_t next_sum = 0;
    std::size_t next_stack = num_sums;
    for (const Result& result : results_) {
      if (!result.is_sum()) {
        outputs.push_back(of_stack(b, result.joined, results[next_stack++]));
        continue;
      }
      ValueId sum = results[next_sum++];
      for (std::size_t i = 1; i < result.terms.size(); ++i) {
        sum = ops::add(b, sum, results[next_sum++]);
      }
      outputs.push_back(sum);
    }
    return outputs;
  }

  static ValueId of_stack(ir::Builder& b, const Joined& joined, ValueId stack) {
    if (joined.how == Joined::How::max) return ops::reduce_max(b, stack, {0});
    if (joined.axis == 0) return stack;
    ir::Ints permutation;
    for (std::int64_t dim = 1; dim < b.type(stack).rank(); ++dim) permutation.push_back(dim);
    permutation.insert(permutation.begin() + joined.axis, 0);
    return ops::transpose(b, stack, std::move(permutation));
  }

  const Function& microbatch_;
  std::size_t num_slices_;
  std::vector<Result> results_;
};

}  // namespace

std::vector<ValueId> loop_over_microbatches(ir::Builder& b, const Function& microbatch,
                                            const std::vector<Joined>& joined,
                                            const std::vector<ValueId>& batches,
                                            const std::vector<ValueId>& captured) {
  return Loop(microbatch, joined, batches.size()).emit(b, batches, captured);
}

}  // namespace tessera::pipeline
