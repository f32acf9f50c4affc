// One group of the processes that a transport connects, as a transport of its own.
#pragma once

#include "run/transport.h"

namespace tessera::run {

/// The ranks from `first` on of `all`, which must outlive it.
class GroupTransport final : public Transport {
 public:
  GroupTransport(Transport& all, int first, int size) : all_(all), first_(first), size_(size) {}

  int rank() const override { return all_.rank() - first_; }
  int size() const override { return size_; }
  void begin(const CollectiveLabel& label) override { all_.begin(label); }
  void exchange(std::span<const Send> sends, std::span<const Receive> receives) override;
  void give_up(std::string_view why) noexcept override { all_.give_up(why); }
  std::int64_t received_bytes() const override { return all_.received_bytes(); }

 private:
  Transport& all_;
  int first_;
  int size_;
};

}  // namespace tessera::run
