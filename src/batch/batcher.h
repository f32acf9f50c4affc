// State shared by all functions that are batched together, including nested ones.
#pragma once

#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "batch/batch.h"
#include "ir/reach.h"
#include "ops/record.h"

namespace tessera::batch {

using Marks = std::vector<bool>;
using FunctionPtr = std::shared_ptr<const ir::Function>;

/// A nested function after batching.
struct BatchedBody {
  FunctionPtr function;
  Marks outputs;  // which have the batch dimension
};

/// Results of one equation after batching.
struct Results {
  std::vector<ir::ValueId> ids;
  Marks is_batched;
};

class Batcher {
 public:
  /// `axis` must outlive this object.
  Batcher(std::int64_t size, const ops::BatchAxis& axis);

  Batched function(const ir::Function& function, const Marks& is_batched_input,
                   const Marks& must_be_batched);
  /// Batches a nested function. The same arguments give the same object again.
  BatchedBody body(const FunctionPtr& function, const Marks& is_batched_input,
                   const Marks& must_be_batched = {});
  /// Batches ops whose batch rule is not in their record but in src/batch/control.cc: those with
  /// nested functions, and optimization_barrier.
  Results inside(ops::BatchContext& c);

  /// Which operands and results of an equation with bodies are batched inside it, given which of
  /// its operands are batched. A carry that one iteration returns batched is batched in all
  /// iterations.
  Marks operands_inside(const ir::Equation& equation, const Marks& operands);
  Marks results_of(const ir::Equation& equation, const Marks& operands);
  /// Whether the equation, or one nested in it, is over the axis of the batch.
  bool is_over_axis(const ir::Equation& equation);

  std::int64_t size() const { return size_; }
  const ops::BatchAxis& axis() const { return axis_; }

 private:
  struct Request {
    const ir::Function* function;
    Marks inputs;
    Marks outputs;
    friend auto operator<=>(const Request&, const Request&) = default;
  };
  struct Done {
    FunctionPtr function;  // keeps the address from being reused
    BatchedBody batched;
  };

  std::int64_t size_;
  const ops::BatchAxis& axis_;
  ir::Reach reach_;
  std::map<Request, Done> done_;
  std::unordered_map<const ir::Function*, std::pair<FunctionPtr, bool>> over_axis_;
};

}  // namespace tessera::batch
