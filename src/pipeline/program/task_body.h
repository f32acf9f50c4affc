// The function that a task of a pipeline runs.
#pragma once

#include <compare>
#include <memory>
#include <unordered_map>

#include "pipeline/program/stages.h"

namespace tessera::pipeline {

/// A value of the loop: of one microbatch, or the same for all.
struct Key {
  enum class Kind : std::uint8_t {
    shared,      // constants of the loop, and values computed once before it
    sum,         // a carry: `value` is its number
    microbatch,  // a value of the body
  };
  Kind kind = Kind::shared;
  std::int64_t microbatch = -1;
  ValueId value = kNoValue;
  friend auto operator<=>(const Key&, const Key&) = default;
};

/// A function, and which values of the loop its inputs and outputs are.
struct TaskBody {
  std::shared_ptr<const Function> function;
  std::vector<Key> inputs;
  std::vector<Key> outputs;
  bool is_empty() const { return outputs.empty(); }
};

/// Makes bodies; tasks with equal functions share one.
class TaskBodies {
 public:
  explicit TaskBodies(const Stages& stages) : stages_(stages) {}
  TaskBody body_of(const FusedTask& task);

 private:
  const Stages& stages_;
  std::unordered_multimap<std::size_t, std::shared_ptr<const Function>> made_;  // by hash
};

}  // namespace tessera::pipeline
