// A transport for one group of the processes that another transport connects.
#pragma once

#include "run/transport/transport.h"

namespace tessera::run {

/// Connects the `size` ranks of `all` from `first` on, which are numbered from 0 here. `all` must
/// outlive this object.
class GroupTransport final : public Transport {
 public:
  GroupTransport(Transport& all, int first, int size) : all_(all), first_(first), size_(size) {}

  int rank() const override { return all_.rank() - first_; }
  int size() const override { return size_; }
  void begin(const CollectiveLabel& label) override { all_.begin(label); }
  void exchange(std::span<const Send> sends, std::span<const Receive> receives) override;
  void give_up(std::string_view why) noexcept override { all_.give_up(why); }
  std::int64_t received_bytes() const override { return all_.received_bytes(); }
  std::int64_t message_bytes() const override { return all_.message_bytes(); }

 private:
  Transport& all_;
  int first_;
  int size_;
};

}  // namespace tessera::run
