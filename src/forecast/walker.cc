#include "forecast/walker.h"

#include <algorithm>

#include <tessera/error.h>

namespace tessera::forecast {

namespace {

using Kind = Item::Kind;

constexpr std::array<Lane, kNumLanes> kLanes = {Lane::compute, Lane::collective, Lane::transfer};

std::size_t number(Lane lane) { return static_cast<std::size_t>(lane); }

Lane lane_of(const Item& exchange) {
  return exchange.kind == Kind::collective ? Lane::collective : Lane::transfer;
}

}  // namespace

void Busy::add(double start, double end) {
  if (end <= start) return;
  if (!spans_.empty() && spans_.back().end == start) {
    spans_.back().end = end;
  } else {
    spans_.push_back({start, end});
  }
}

double Busy::total() const {
  double sum = 0;
  for (const Span& span : spans_) sum += span.end - span.start;
  return sum;
}

double Busy::of_both(const Busy& a, const Busy& b) {
  double sum = 0;
  for (auto x = a.spans_.begin(), y = b.spans_.begin();
       x != a.spans_.end() && y != b.spans_.end();) {
    sum += std::max(0.0, std::min(x->end, y->end) - std::max(x->start, y->start));
    (x->end < y->end ? x : y)++;
  }
  return sum;
}

Busy Busy::of_either(const Busy& a, const Busy& b) {
  Busy either;
  auto x = a.spans_.begin();
  auto y = b.spans_.begin();
  while (x != a.spans_.end() || y != b.spans_.end()) {
    const bool is_x = y == b.spans_.end() || (x != a.spans_.end() && x->start <= y->start);
    const Span span = is_x ? *x++ : *y++;
    if (!either.spans_.empty() && span.start <= either.spans_.back().end) {
      either.spans_.back().end = std::max(either.spans_.back().end, span.end);
    } else {
      either.spans_.push_back(span);
    }
  }
  return either;
}

const Orders& Device::orders_of(const Program& program) {
  const auto [known, is_new] = orders_.try_emplace(&program);
  if (is_new) known->second = forecast::orders_of(program, overlaps_, order_);
  return known->second;
}

void Device::communicate(Lane lane, double start, double end) {
  exchanges_[number(lane)].add(start, end);
  free(lane) = end;
  if (!overlaps_) free(Lane::compute) = end;
}

DeviceTimes Device::times(double whole_step) const {
  const Busy exchanges =
      Busy::of_either(exchanges_[number(Lane::collective)], exchanges_[number(Lane::transfer)]);
  DeviceTimes times{.computing = computing_.total(), .communicating = exchanges.total()};
  times.exposed = times.communicating - Busy::of_both(exchanges, computing_);
  times.idle = std::max(0.0, whole_step - times.computing - times.exposed);
  return times;
}

Walker::Walker(const Program& program, Device& device, double begin)
    : program_(program),
      device_(device),
      orders_(device.orders_of(program)),
      begin_(begin),
      last_end_(begin),
      num_left_(program.items.size()),
      end_(program.items.size(), -1.0) {}

bool Walker::advance() {
  bool has_run = false;
  for (bool runs = true; runs;) {
    runs = false;
    for (const Lane lane : kLanes) {
      const std::vector<std::uint32_t>& order = orders_[number(lane)];
      while (next_[number(lane)] < order.size() && can_run(order[next_[number(lane)]])) {
        run(order[next_[number(lane)]]);
        runs = true;
      }
    }
    has_run |= runs;
  }
  return has_run;
}

bool Walker::is_next_in_lanes(std::uint32_t item) const {
  const Item& it = program_.items[item];
  const auto is_next = [&](Lane lane) {
    const std::vector<std::uint32_t>& order = orders_[number(lane)];
    const std::size_t next = next_[number(lane)];
    return next < order.size() && order[next] == item;
  };
  if ((!is_exchange(it) || !device_.overlaps()) && !is_next(Lane::compute)) return false;
  if (has_collectives(it) && !is_next(Lane::collective)) return false;
  return !is_exchange(it) || is_next(lane_of(it));
}

bool Walker::can_run(std::uint32_t item) const {
  const Item& it = program_.items[item];
  if (it.kind == Kind::send || it.kind == Kind::receive || !is_next_in_lanes(item)) return false;
  return std::all_of(it.after.begin(), it.after.end(),
                     [&](std::uint32_t before) { return end_[before] >= 0; });
}

/// When the item's inputs are there and the device is free for it.
double Walker::earliest(std::uint32_t item) const {
  const Item& it = program_.items[item];
  double start = begin_;
  for (const std::uint32_t before : it.after) start = std::max(start, end_[before]);
  if (!is_exchange(it) || !device_.overlaps()) start = std::max(start, device_.free(Lane::compute));
  if (is_exchange(it)) start = std::max(start, device_.free(lane_of(it)));
  return start;
}

void Walker::run(std::uint32_t item) {
  const Item& it = program_.items[item];
  const double start = earliest(item);
  double end = start;
  if (it.kind == Kind::control) {
    end = run_rounds(it, start);
  } else if (it.kind == Kind::compute) {
    end += it.seconds;
    device_.compute(start, end);
    device_.free(Lane::compute) = end;
  } else {
    end += it.exchange.seconds;
    device_.communicate(lane_of(it), start, end);
  }
  finish(item, end);
}

double Walker::run_rounds(const Item& item, double start) {
  for (const Rounds& rounds : item.rounds) {
    for (std::int64_t round = 0; round < rounds.count; ++round) {
      Walker walker(*rounds.program, device_, start);
      walker.advance();
      require(walker.has_ended(), "nested functions do not wait for other groups");
      start = walker.end();
    }
  }
  return start;
}

void Walker::finish(std::uint32_t item, double end) {
  const Item& it = program_.items[item];
  if (!is_exchange(it) || !device_.overlaps()) ++next_[number(Lane::compute)];
  if (has_collectives(it)) ++next_[number(Lane::collective)];
  if (is_exchange(it) && lane_of(it) == Lane::transfer) ++next_[number(Lane::transfer)];
  end_[item] = end;
  last_end_ = std::max(last_end_, end);
  --num_left_;
}

const Item* Walker::next_transfer() const {
  const std::vector<std::uint32_t>& order = orders_[number(Lane::transfer)];
  const std::size_t next = next_[number(Lane::transfer)];
  if (next == order.size() || !is_next_in_lanes(order[next])) return nullptr;
  const Item& item = program_.items[order[next]];
  const bool is_ready = std::all_of(item.after.begin(), item.after.end(),
                                    [&](std::uint32_t before) { return end_[before] >= 0; });
  return is_ready ? &item : nullptr;
}

double Walker::transfer_start() const {
  return earliest(orders_[number(Lane::transfer)][next_[number(Lane::transfer)]]);
}

void Walker::end_transfer(double start) {
  const std::uint32_t item = orders_[number(Lane::transfer)][next_[number(Lane::transfer)]];
  const double end = start + program_.items[item].exchange.seconds;
  device_.communicate(Lane::transfer, start, end);
  finish(item, end);
}

}  // namespace tessera::forecast
