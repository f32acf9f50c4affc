// Runs the items of programs on one device and notes when it computes and when it communicates.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <vector>

#include "forecast/orders.h"
#include "forecast/program.h"

namespace tessera::forecast {

/// Times in which a device does something, one after the other.
class Busy {
 public:
  void add(double start, double end);
  double total() const;
  /// Busy when at least one of the two is.
  static Busy of_either(const Busy& a, const Busy& b);
  /// The time in which both are busy.
  static double of_both(const Busy& a, const Busy& b);

 private:
  struct Span {
    double start, end;
  };
  std::vector<Span> spans_;
};

/// The device on which a program and its nested programs run.
class Device {
 public:
  Device(bool overlaps, Order order) : overlaps_(overlaps), order_(order) {}

  bool overlaps() const { return overlaps_; }
  const Orders& orders_of(const Program& program);
  /// When the device has ended what it does in a lane.
  double& free(Lane lane) { return free_[static_cast<std::size_t>(lane)]; }
  void compute(double start, double end) { computing_.add(start, end); }
  void communicate(Lane lane, double start, double end);
  DeviceTimes times(double whole_step) const;

 private:
  bool overlaps_;
  Order order_;
  std::map<const Program*, Orders> orders_;
  std::array<double, kNumLanes> free_{};
  Busy computing_;
  std::array<Busy, kNumLanes> exchanges_;
};

/// One run of a program.
class Walker {
 public:
  /// Nothing starts before `begin`.
  Walker(const Program& program, Device& device, double begin);

  /// Runs all items that can run, except transfers. Returns whether there was one.
  bool advance();
  bool has_ended() const { return num_left_ == 0; }
  double end() const { return last_end_; }

  /// The transfer that waits only for the other group; nullptr if there is none.
  const Item* next_transfer() const;
  /// When this end of that transfer could start.
  double transfer_start() const;
  void end_transfer(double start);

 private:
  bool is_next_in_lanes(std::uint32_t item) const;
  bool can_run(std::uint32_t item) const;
  double earliest(std::uint32_t item) const;
  void run(std::uint32_t item);
  double run_rounds(const Item& item, double start);
  void finish(std::uint32_t item, double end);

  const Program& program_;
  Device& device_;
  const Orders& orders_;
  double begin_;
  double last_end_;
  std::size_t num_left_;
  std::array<std::size_t, kNumLanes> next_{};
  std::vector<double> end_;  // per item; negative: not yet ended
};

}  // namespace tessera::forecast
