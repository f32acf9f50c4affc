#include "forecast/orders.h"

#include <functional>
#include <queue>

#include <tessera/error.h>

namespace tessera::forecast {

namespace {

using Kind = Item::Kind;

std::vector<std::uint32_t>& lane(Orders& orders, Lane which) {
  return orders[static_cast<std::size_t>(which)];
}

/// Finds the patient order: takes the first item in program order that waits for nothing but
/// computing. If there is none, the oldest collective that has begun counts as ended.
class Patience {
 public:
  explicit Patience(const Program& program)
      : items_(program.items), missing_(items_.size(), 0), readers_(items_.size()) {
    for (std::uint32_t i = 0; i < items_.size(); ++i) {
      missing_[i] = items_[i].after.size();
      for (const std::uint32_t before : items_[i].after) readers_[before].push_back(i);
      if (has_collectives(items_[i])) collectives_.push_back(i);
      if (!is_exchange(items_[i]) && missing_[i] == 0) ready_.push(i);
    }
  }

  std::vector<std::uint32_t> order() {
    std::vector<std::uint32_t> order;
    while (true) {
      begin_collectives();
      if (const std::uint32_t next = next_ready(); next != kNone) {
        order.push_back(next);
        if (has_collectives(items_[next])) ++next_collective_;
        end(next);
      } else if (next_to_end_ < begun_.size()) {
        end(begun_[next_to_end_++]);
      } else {
        break;
      }
    }
    return order;
  }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  /// A collective may begin when its inputs are there, or come from a collective that has begun.
  void begin_collectives() {
    while (next_collective_ < collectives_.size()) {
      const std::uint32_t next = collectives_[next_collective_];
      if (!is_exchange(items_[next])) return;
      for (const std::uint32_t before : items_[next].after) {
        if (!is_begun_[before] && !has_ended_[before]) return;
      }
      is_begun_[next] = true;
      begun_.push_back(next);
      ++next_collective_;
    }
  }

  /// The first item that can be computed. A loop with collectives keeps its place among the others.
  std::uint32_t next_ready() {
    std::vector<std::uint32_t> skipped;
    std::uint32_t found = kNone;
    while (!ready_.empty() && found == kNone) {
      const std::uint32_t item = ready_.top();
      ready_.pop();
      const bool is_early = has_collectives(items_[item]) && collectives_[next_collective_] != item;
      if (is_early) {
        skipped.push_back(item);
      } else {
        found = item;
      }
    }
    for (const std::uint32_t item : skipped) ready_.push(item);
    return found;
  }

  void end(std::uint32_t item) {
    has_ended_[item] = true;
    for (const std::uint32_t reader : readers_[item]) {
      if (--missing_[reader] == 0 && !is_exchange(items_[reader])) ready_.push(reader);
    }
  }

  const std::vector<Item>& items_;
  std::vector<std::size_t> missing_;  // per item: how many of its inputs have not ended
  std::vector<std::vector<std::uint32_t>> readers_;
  std::vector<std::uint32_t> collectives_;
  std::size_t next_collective_ = 0;
  std::vector<std::uint32_t> begun_;
  std::size_t next_to_end_ = 0;
  std::vector<bool> is_begun_ = std::vector<bool>(items_.size(), false);
  std::vector<bool> has_ended_ = std::vector<bool>(items_.size(), false);
  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> ready_;
};

}  // namespace

Orders orders_of(const Program& program, bool overlaps, Order order) {
  Orders orders;
  for (std::uint32_t i = 0; i < program.items.size(); ++i) {
    const Item& item = program.items[i];
    const bool is_transfer = item.kind == Kind::send || item.kind == Kind::receive;
    if (!is_exchange(item) || !overlaps) lane(orders, Lane::compute).push_back(i);
    if (has_collectives(item)) lane(orders, Lane::collective).push_back(i);
    if (is_transfer) lane(orders, Lane::transfer).push_back(i);
  }
  if (overlaps && order == Order::patient) {
    std::vector<std::uint32_t> patient = Patience(program).order();
    require(patient.size() == lane(orders, Lane::compute).size(), "every item has its turn");
    lane(orders, Lane::compute) = std::move(patient);
  }
  return orders;
}

}  // namespace tessera::forecast
