// Appends equations to a function that is being partitioned.
#pragma once

#include "ir/builder.h"

namespace tessera::partition {

/// Emits into a partitioned function: every new value gets a sharding.
class ShardedBuilder {
 public:
  ShardedBuilder(ir::Function& out, const Span& span) : out_(out), b_(out) { b_.set_span(span); }

  /// Runs emit(ir::Builder&). New values have the sharding; scalars have none.
  template <class Emit>
  auto operator()(const Sharding& sharding, const Emit& emit) {
    const std::size_t first = out_.values.size();
    auto result = emit(b_);
    for (std::size_t id = first; id < out_.values.size(); ++id) {
      const bool is_scalar = out_.values[id].type.rank() == 0;
      out_.values[id].sharding = is_scalar ? replicated_sharding(0) : sharding;
    }
    return result;
  }

 private:
  ir::Function& out_;
  ir::Builder b_;
};

}  // namespace tessera::partition
