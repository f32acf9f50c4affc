#include "compile/host/kernels/loop/code/allocation.h"

#include <algorithm>
#include <span>
#include <utility>

namespace tessera::kernels::loops {

namespace {

using Kind = Location::Kind;

/// The instructions during which a value is needed, numbered in the order of the program.
struct Interval {
  int value = 0;
  int begin = -1;
  int end = -1;
};

class Allocator {
 public:
  Allocator(const ScalarProgram& program, const RegisterFile& file)
      : program_(program),
        intervals_(program.values.size()),
        free_{file.general, file.general_kept, file.vector} {
    result_.locations.resize(program.values.size());
  }

  Allocation allocate() {
    find_intervals();
    std::vector<Interval> order;
    for (std::size_t v = 0; v < intervals_.size(); ++v) {
      intervals_[v].value = static_cast<int>(v);
      if (program_.values[v].constant) {
        result_.locations[v].kind = Kind::constant;
      } else if (intervals_[v].begin >= 0) {
        order.push_back(intervals_[v]);
      }
    }
    std::sort(order.begin(), order.end(), [](const Interval& a, const Interval& b) {
      return std::pair(a.begin, a.value) < std::pair(b.begin, b.value);
    });
    for (const Interval& interval : order) place(interval);
    return std::move(result_);
  }

 private:
  enum Pool : std::uint8_t { general, general_kept, vector, num_pools };

  struct Active {
    Interval interval;
    Pool pool;
    int reg;
  };

  Interval& interval(int value) { return intervals_[static_cast<std::size_t>(value)]; }
  Location& location(int value) { return result_.locations[static_cast<std::size_t>(value)]; }

  void find_intervals() {
    int position = 0;
    const auto visit = [&](std::span<const Instruction> list) {
      for (const Instruction& instruction : list) {
        for (const int v : instruction.inputs) interval(v).end = position;
        for (const int v : instruction.outputs) {
          interval(v).begin = position;
          interval(v).end = position;
        }
        if (instruction.op == Op::call) calls_.push_back(position);
        position += 1;
      }
    };
    visit(program_.before);
    const int round_begin = position;
    visit(program_.round);
    const int round_end = position++;
    // What was set before the first round is needed in all of them.
    for (Interval& given : intervals_) {
      if (given.begin < round_begin && given.end >= round_begin) given.end = round_end;
    }
    for (const auto& carried : program_.carried) {
      interval(carried.value).end = round_end;
      interval(carried.next).end = std::max(interval(carried.next).end, round_end);
    }
    visit(program_.after);
  }

  bool crosses_call(const Interval& given) const {
    const auto call = std::upper_bound(calls_.begin(), calls_.end(), given.begin);
    return call != calls_.end() && *call < given.end;
  }

  void place(const Interval& given) {
    std::erase_if(active_, [&](const Active& active) {
      if (active.interval.end > given.begin) return false;
      free_[active.pool].push_back(active.reg);
      return true;
    });
    for (const Pool pool : pools_for(given)) {
      if (free_[pool].empty()) continue;
      take(given, pool, free_[pool].back());
      free_[pool].pop_back();
      return;
    }
    if (!replace(given)) give_slot(given);
  }

  std::vector<Pool> pools_for(const Interval& given) const {
    const bool is_kept = crosses_call(given);
    if (program_.values[static_cast<std::size_t>(given.value)].is_in_vector()) {
      return is_kept ? std::vector<Pool>{} : std::vector{Pool::vector};
    }
    return is_kept ? std::vector{Pool::general_kept}
                   : std::vector{Pool::general, Pool::general_kept};
  }

  void take(const Interval& given, Pool pool, int reg) {
    location(given.value) = {pool == Pool::vector ? Kind::vector : Kind::general, reg};
    active_.push_back({.interval = given, .pool = pool, .reg = reg});
  }

  void give_slot(const Interval& given) {
    location(given.value) = {Kind::slot, static_cast<int>(result_.num_slots++)};
  }

  // Takes the register of the value that is needed longest.
  bool replace(const Interval& given) {
    const std::vector<Pool> pools = pools_for(given);
    Active* longest = nullptr;
    for (Active& active : active_) {
      if (std::find(pools.begin(), pools.end(), active.pool) == pools.end()) continue;
      if (longest == nullptr || active.interval.end > longest->interval.end) longest = &active;
    }
    if (longest == nullptr || longest->interval.end <= given.end) return false;
    give_slot(longest->interval);
    const auto [pool, reg] = std::pair(longest->pool, longest->reg);
    active_.erase(active_.begin() + (longest - active_.data()));
    take(given, pool, reg);
    return true;
  }

  const ScalarProgram& program_;
  std::vector<Interval> intervals_;  // per value
  std::vector<int> calls_;           // where calls are
  std::vector<int> free_[num_pools];
  std::vector<Active> active_;
  Allocation result_;
};

}  // namespace

Allocation allocate(const ScalarProgram& program, const RegisterFile& file) {
  return Allocator(program, file).allocate();
}

}  // namespace tessera::kernels::loops
