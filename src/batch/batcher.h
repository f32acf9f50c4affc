// What is known of all functions that are batched together, however deep they are nested.
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

/// A nested function for the batch.
struct BatchedBody {
  FunctionPtr function;
  Marks outputs;  // which have the batch dimension
};

/// Results of one equation for the batch.
struct Results {
  std::vector<ir::ValueId> ids;
  Marks is_batched;
};

class Batcher {
 public:
  /// `axis` outlives this.
  Batcher(std::int64_t size, const ops::BatchAxis& axis);

  Batched function(const ir::Function& function, const Marks& is_batched_input,
                   const Marks& must_be_batched);
  /// A nested function; one that is asked for again in the same way is the same object.
  BatchedBody body(const FunctionPtr& function, const Marks& is_batched_input,
                   const Marks& must_be_batched = {});
  /// What src/batch/control.cc does.
  Results inside(ops::BatchContext& c);

  /// Which operands and results of an equation with bodies are batched within it, as far as that
  /// follows from its operands: what one iteration returns batched is batched in all iterations.
  Marks operands_inside(const ir::Equation& equation, const Marks& operands);
  Marks results_of(const ir::Equation& equation, const Marks& operands);
  /// Whether the equation, or what is nested in it, is over the axis of the batch.
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
    FunctionPtr function;  // the address stays taken
    BatchedBody batched;
  };

  std::int64_t size_;
  const ops::BatchAxis& axis_;
  ir::Reach reach_;
  std::map<Request, Done> done_;
  std::unordered_map<const ir::Function*, std::pair<FunctionPtr, bool>> over_axis_;
};

}  // namespace tessera::batch
