#include "pipeline/program/task_body.h"

#include <algorithm>
#include <map>

#include <tessera/error.h>

#include "ir/builder.h"
#include "ir/hash.h"

namespace tessera::pipeline {

namespace {

/// The items of a task on one microbatch.
struct BodyPart {
  std::vector<Item> items;
  std::int64_t microbatch;
};

std::vector<BodyPart> parts_of(const FusedTask& task) {
  std::vector<BodyPart> parts;
  for (const Task& one : task.parts) {
    parts.push_back({.items = items_of(one), .microbatch = one.microbatch});
  }
  return parts;
}

/// Copies equations of the loop's body into the function of a task.
class TaskBodyWriter {
 public:
  TaskBodyWriter(const Stages& stages, const std::vector<BodyPart>& parts)
      : stages_(stages), parts_(parts), function_(ir::empty_like(stages.body)) {
    function_.name = "task";
  }

  TaskBody write() {
    for (const BodyPart& part : parts_) {
      for (std::size_t i = 0; i < stages_.homes.size(); ++i) {
        if (!is_of(part, i)) continue;
        copy(i, part.microbatch);
      }
    }
    find_outputs();
    for (const Key& key : body_.outputs) function_.outputs.push_back(known_.at(key));
    body_.function = std::make_shared<const Function>(std::move(function_));
    return std::move(body_);
  }

 private:
  bool is_of(const BodyPart& part, std::size_t i) const {
    const Home& home = stages_.homes[i];
    return home.kind == Home::Kind::item &&
           std::find(part.items.begin(), part.items.end(), home.item) != part.items.end();
  }

  void copy(std::size_t i, std::int64_t microbatch) {
    Equation equation = stages_.body.equations[i];
    for (ValueId& id : equation.operands) id = resolve(id, microbatch);
    for (ValueId& id : equation.results) {
      const ValueId made = function_.add_value(stages_.body.values[id]);
      define(id, microbatch, made);
      id = made;
    }
    function_.equations.push_back(std::move(equation));
  }

  void define(ValueId id, std::int64_t microbatch, ValueId made) {
    known_[{Key::Kind::microbatch, microbatch, id}] = made;
    if (!stages_.is_sum(id)) return;
    const Key sum{Key::Kind::sum, -1, static_cast<ValueId>(stages_.output[id])};
    if (std::find(sums_.begin(), sums_.end(), sum) == sums_.end()) sums_.push_back(sum);
    known_[sum] = made;
  }

  Key key_of(ValueId id, std::int64_t microbatch) const {
    if (stages_.is_carry(id)) {
      return {Key::Kind::sum, -1,
              static_cast<ValueId>(stages_.input[id] - stages_.parts.num_consts)};
    }
    const Home* home = stages_.home_of(id);
    const bool is_shared =
        home == nullptr ? stages_.is_const(id) : home->kind == Home::Kind::hoisted;
    if (is_shared) return {Key::Kind::shared, -1, id};
    return {Key::Kind::microbatch, microbatch, id};
  }

  /// The value in this function. If it is not known yet, its equation is copied or it becomes an
  /// input.
  ValueId resolve(ValueId id, std::int64_t microbatch) {
    id = stages_.behind_marks(id);
    const Key key = key_of(id, microbatch);
    const auto known = known_.find(key);
    if (known != known_.end()) return known->second;
    const Home* home = stages_.home_of(id);
    if (home != nullptr && home->kind == Home::Kind::users) {
      copy(stages_.definition[id], microbatch);
      return known_.at(key);
    }
    const ValueId input = function_.add_value(stages_.body.values[id]);
    function_.inputs.push_back(input);
    body_.inputs.push_back(key);
    return known_[key] = input;
  }

  /// Whether another task, or the program after the loop, reads the value.
  bool is_needed_outside(ValueId id, std::int64_t microbatch) const {
    const std::vector<Item>& users = stages_.users[id];
    const bool is_read = std::any_of(users.begin(), users.end(), [&](const Item& item) {
      return std::none_of(parts_.begin(), parts_.end(), [&](const BodyPart& part) {
        return part.microbatch == microbatch &&
               std::find(part.items.begin(), part.items.end(), item) != part.items.end();
      });
    });
    return is_read || stages_.is_row(id);
  }

  void find_outputs() {
    body_.outputs = sums_;
    for (const BodyPart& part : parts_) {
      for (std::size_t i = 0; i < stages_.homes.size(); ++i) {
        if (!is_of(part, i)) continue;
        for (ValueId id : stages_.body.equations[i].results) {
          if (!is_needed_outside(id, part.microbatch)) continue;
          body_.outputs.push_back({Key::Kind::microbatch, part.microbatch, id});
        }
      }
    }
  }

  const Stages& stages_;
  const std::vector<BodyPart>& parts_;
  Function function_;
  TaskBody body_;
  std::map<Key, ValueId> known_;
  std::vector<Key> sums_;  // the sums that are written
};

}  // namespace

TaskBody TaskBodies::body_of(const FusedTask& task) {
  const std::vector<BodyPart> parts = parts_of(task);
  TaskBody body = TaskBodyWriter(stages_, parts).write();
  const std::size_t hash = ir::hash_of(*body.function);
  const auto [begin, end] = made_.equal_range(hash);
  const auto found =
      std::find_if(begin, end, [&](const auto& item) { return *item.second == *body.function; });
  if (found != end) {
    body.function = found->second;
  } else {
    made_.emplace(hash, body.function);
  }
  return body;
}

}  // namespace tessera::pipeline
