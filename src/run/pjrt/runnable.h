// A program that a plugin has compiled, and the tiles that its devices hold.
#pragma once

#include <map>

#include "run/pjrt/client.h"

namespace tessera::run::pjrt {

using PortPtr = std::shared_ptr<const DevicePort>;

/// A tile on some of the devices of a client. The buffers have the size of the room of the port for
/// which they were made.
class Copies final : public DeviceCopies {
 public:
  Copies(Client& client, PortPtr port, Shape shape)
      : client_(client), port_(std::move(port)), shape_(std::move(shape)) {}

  void add(std::int64_t device, BufferHandle buffer) {
    buffers_.insert_or_assign(device, std::move(buffer));
  }
  bool has_room(const Client& client, const Shape& room) const {
    return &client == &client_ && room == port_->room;
  }
  /// nullptr if this device has none.
  BufferHandle find(std::int64_t device) const;
  /// The buffer on one of the devices.
  abi::Buffer* any() const { return buffers_.begin()->second.get(); }
  void wait() const override;
  void read(std::span<std::byte> to) const override;

 private:
  void check(const std::optional<Failure>& failure) const;

  Client& client_;
  PortPtr port_;
  Shape shape_;
  std::map<std::int64_t, BufferHandle> buffers_;
};

class PjrtRunnable final : public Runnable {
 public:
  /// Takes over `loaded`.
  PjrtRunnable(Client& client, const DeviceProgram& program, abi::Loaded* loaded);
  ~PjrtRunnable() override;
  PjrtRunnable(const PjrtRunnable&) = delete;
  PjrtRunnable& operator=(const PjrtRunnable&) = delete;

  std::vector<Tiles> execute(std::vector<Tiles>& inputs,
                             const std::function<void()>& on_begin) const override;
  std::optional<DeviceMemory> memory() const override { return memory_; }

 private:
  using PerDevice = std::vector<std::vector<abi::Buffer*>>;
  void place(const PortPtr& port, Tiles& tiles, PerDevice& arguments,
             std::vector<BufferHandle>& held) const;
  std::vector<std::int64_t> not_donated(const std::vector<Tiles>& inputs) const;
  std::vector<Tiles> take_outputs(const PerDevice& outputs) const;
  void ask_memory();

  Client& client_;
  std::string name_;
  std::int64_t first_device_;
  std::size_t num_devices_;
  std::vector<PortPtr> inputs_;
  std::vector<PortPtr> outputs_;
  std::vector<bool> is_donated_;
  abi::Loaded* loaded_;
  DeviceMemory memory_;
};

/// Copies an array to the devices of another group.
class PjrtTransfer final : public Runnable {
 public:
  PjrtTransfer(Client& client, DevicePort port)
      : client_(client), port_(std::make_shared<const DevicePort>(std::move(port))) {}
  std::vector<Tiles> execute(std::vector<Tiles>& inputs,
                             const std::function<void()>& on_begin) const override;

 private:
  Client& client_;
  PortPtr port_;
};

}  // namespace tessera::run::pjrt
