#include "partition/combine_collectives.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "ops/ops.h"
#include "ops/record.h"
#include "partition/moves.h"

namespace tessera::partition {

using ir::Equation;
using ir::Function;
using ir::ValueId;

namespace {

constexpr int kNotPending = -1;
constexpr std::int64_t kMostBuckets = 8;
constexpr std::int64_t kLeastBytes = std::int64_t{1} << 20;  // sending less is mostly latency
constexpr std::int64_t kMostBytes = std::int64_t{32} << 20;

/// Collectives that wait for others, together with the equations that use their results.
struct Bucket {
  std::vector<std::size_t> members;
  std::vector<std::size_t> waiting;
  std::int64_t bytes = 0;
};

/// Walks the program once. A bucket is emitted when one of its results is first used in a
/// computation.
class Combiner {
 public:
  explicit Combiner(Function function)
      : function_(std::move(function)), bucket_of_(function_.values.size(), kNotPending) {
    std::int64_t all_bytes = 0;
    for (const Equation& equation : function_.equations) {
      if (kind_to_combine(equation)) all_bytes += bytes_of(equation);
    }
    enough_bytes_ = std::clamp(all_bytes / kMostBuckets, kLeastBytes, kMostBytes);
  }

  Function run() {
    equations_.reserve(function_.equations.size());
    for (std::size_t i = 0; i < function_.equations.size(); ++i) visit(i);
    for (std::size_t b = 0; b < buckets_.size(); ++b) flush(static_cast<int>(b));
    function_.equations = std::move(equations_);
    return ir::without_dead_code(std::move(function_));
  }

 private:
  // kind, reduction, dtype, atoms reduced over and those that stay partial
  using Key = std::tuple<MoveKind, std::string, DType, AtomList, AtomList>;

  void visit(std::size_t index) {
    const Equation& equation = function_.equations[index];
    int waits_for = kNotPending;
    for (ValueId id : equation.operands) {
      const int bucket = bucket_of_[id];
      if (bucket == kNotPending || bucket == waits_for) continue;
      if (waits_for == kNotPending && may_wait(equation)) {
        waits_for = bucket;
      } else {
        flush(bucket);
      }
    }
    if (waits_for != kNotPending) {
      buckets_[static_cast<std::size_t>(waits_for)].waiting.push_back(index);
      for (ValueId result : equation.results) bucket_of_[result] = waits_for;
      return;
    }
    if (const auto kind = kind_to_combine(equation)) {
      add(index, *kind);
    } else {
      equations_.push_back(equation);
    }
  }

  static std::optional<MoveKind> kind_to_combine(const Equation& equation) {
    const auto kind = kind_of(*equation.op);
    return kind && is_reducing(*kind) && equation.operands.size() == 1 ? kind : std::nullopt;
  }

  std::int64_t bytes_of(const Equation& equation) const {
    const Type& type = function_.type(equation.operands[0]);
    const Layout layout(function_.mesh, function_.sharding(equation.operands[0]), type.shape);
    return size_bytes(Type{type.dtype, layout.max_tile_shape()});
  }

  /// Views cost nothing. Sums of results are the derivatives of values with several uses; such a
  /// sum would otherwise use the first results before the last one is known.
  static bool may_wait(const Equation& equation) {
    return equation.op == &ops::add_op || (equation.operands.size() == 1 && ops::is_view(equation));
  }

  void add(std::size_t index, MoveKind kind) {
    const Equation& equation = function_.equations[index];
    const Type& type = function_.type(equation.operands[0]);
    const Sharding& from = function_.sharding(equation.operands[0]);
    const Sharding& to = function_.sharding(equation.results[0]);
    const std::int64_t bytes = bytes_of(equation);
    const Key key{kind, equation.attributes.get<std::string>("reduction"), type.dtype, from.partial,
                  to.partial};
    auto [place, is_new] = open_.try_emplace(key, static_cast<int>(buckets_.size()));
    if (is_new) {
      buckets_.emplace_back();
    } else {
      const std::int64_t held = buckets_[static_cast<std::size_t>(place->second)].bytes;
      if (held >= enough_bytes_ || held + bytes > kMostBytes) flush(place->second);
    }
    Bucket& bucket = buckets_[static_cast<std::size_t>(place->second)];
    bucket.members.push_back(index);
    bucket.bytes += bytes;
    bucket_of_[equation.results[0]] = place->second;
  }

  /// Emits the bucket, which is empty afterwards.
  void flush(int id) {
    Bucket bucket = std::exchange(buckets_[static_cast<std::size_t>(id)], {});
    if (bucket.members.empty()) return;
    Equation joined = function_.equations[bucket.members[0]];
    joined.operands.clear();
    joined.results.clear();
    for (std::size_t index : bucket.members) {
      const Equation& member = function_.equations[index];
      joined.operands.push_back(member.operands[0]);
      joined.results.push_back(member.results[0]);
      bucket_of_[member.results[0]] = kNotPending;
    }
    equations_.push_back(std::move(joined));
    for (std::size_t index : bucket.waiting) {
      equations_.push_back(function_.equations[index]);
      for (ValueId result : equations_.back().results) bucket_of_[result] = kNotPending;
    }
  }

  Function function_;
  std::int64_t enough_bytes_;   // a bucket with this many takes no more
  std::vector<int> bucket_of_;  // per value: the bucket that will define it
  std::vector<Bucket> buckets_;
  std::map<Key, int> open_;
  std::vector<Equation> equations_;
};

}  // namespace

Function combine_collectives(Function function) { return Combiner(std::move(function)).run(); }

}  // namespace tessera::partition
