#include "run/pjrt/runnable.h"

#include <algorithm>

#include <tessera/error.h>

#include "run/tiles/tiled.h"

namespace tessera::run::pjrt {

namespace {

/// Copies the elements that both arrays have. The arrays begin at the same corner.
void copy_common(const Shape& common, DType dtype, const Shape& from_shape, const std::byte* from,
                 const Shape& to_shape, std::byte* to) {
  copy_box(whole(common), size_bytes(dtype), whole(from_shape), from, whole(to_shape), to);
}

}  // namespace

BufferHandle Copies::find(std::int64_t device) const {
  const auto place = buffers_.find(device);
  return place == buffers_.end() ? nullptr : place->second;
}

/// Throws RuntimeFault with the op that should have computed the tile.
void Copies::check(const std::optional<Failure>& failure) const {
  if (failure) client_.plugin().fail(*failure, port_->origin);
}

void Copies::wait() const {
  for (const auto& [device, buffer] : buffers_) check(client_.wait(buffer.get()));
}

void Copies::read(std::span<std::byte> to) const {
  const Shape& room = port_->room;
  if (room == shape_) return check(client_.download(any(), room.size(), to));
  std::vector<std::byte> padded(static_cast<std::size_t>(size_bytes({port_->dtype, room})));
  check(client_.download(any(), room.size(), padded));
  copy_common(shape_, port_->dtype, room, padded.data(), shape_, to.data());
}

namespace {

std::vector<PortPtr> shared(const std::vector<DevicePort>& ports) {
  std::vector<PortPtr> all;
  for (const DevicePort& port : ports) all.push_back(std::make_shared<const DevicePort>(port));
  return all;
}

}  // namespace

PjrtRunnable::PjrtRunnable(Client& client, const DeviceProgram& program, abi::Loaded* loaded)
    : client_(client),
      name_(program.name),
      first_device_(program.first_device),
      num_devices_(static_cast<std::size_t>(program.num_devices)),
      inputs_(shared(program.inputs)),
      outputs_(shared(program.outputs)),
      is_donated_(program.is_donated),
      loaded_(loaded) {
  ask_memory();
}

PjrtRunnable::~PjrtRunnable() {
  abi::LoadedDestroy destroy;
  destroy.loaded = loaded_;
  client_.plugin().try_call(destroy);
}

void PjrtRunnable::ask_memory() {
  if (!client_.plugin().has(abi::Function::compiled_memory)) return;
  abi::GetCompiled get;
  get.loaded = loaded_;
  if (client_.plugin().try_call(get)) return;
  abi::CompiledMemory memory;
  memory.compiled = get.compiled;
  if (!client_.plugin().try_call(memory)) {
    memory_ = {.arguments = memory.arguments,
               .outputs = memory.outputs - memory.aliased,
               .temporaries = memory.temporaries};
  }
  abi::CompiledDestroy destroy;
  destroy.compiled = get.compiled;
  client_.plugin().try_call(destroy);
}

namespace {

/// A copy of the tile in an array of the size of the port's room. Padding is 0.
std::shared_ptr<std::vector<std::byte>> padded(const DevicePort& port, const Shape& shape,
                                               const std::byte* data) {
  auto room = std::make_shared<std::vector<std::byte>>(
      static_cast<std::size_t>(size_bytes({port.dtype, port.room})));
  copy_common(shape, port.dtype, shape, data, port.room, room->data());
  return room;
}

/// The tile with a buffer on each of its devices, copied from another device or from the host.
std::shared_ptr<const Copies> on_its_devices(Client& client, const PortPtr& port,
                                             const DeviceTile& place, const BufferPtr& tile) {
  const auto& [shape, devices] = place;
  auto known = std::dynamic_pointer_cast<const Copies>(tile->copies());
  if (known != nullptr && !known->has_room(client, port->room)) known = nullptr;
  std::vector<std::int64_t> missing;
  for (const std::int64_t device : devices) {
    if (known == nullptr || known->find(device) == nullptr) missing.push_back(device);
  }
  if (missing.empty()) return known;
  if (known != nullptr) {
    auto all = std::make_shared<Copies>(*known);
    for (const std::int64_t device : missing) all->add(device, client.copy(known->any(), device));
    return all;
  }
  // The devices read the array while the program goes on. Until they have read it, the upload
  // shares ownership of the tile, so that it is not overwritten.
  const std::byte* data = tile->data();
  std::shared_ptr<const void> owner = tile;
  if (shape != port->room) {
    const std::shared_ptr<std::vector<std::byte>> room = padded(*port, shape, data);
    data = room->data();
    owner = room;
  }
  auto all = std::make_shared<Copies>(client, port, shape);
  for (const std::int64_t device : missing) {
    all->add(device, client.upload(data, owner, port->dtype, port->room, device));
  }
  return all;
}

}  // namespace

/// Puts the tiles of an input on the devices, and appends the buffer of each device to its
/// arguments.
void PjrtRunnable::place(const PortPtr& port, Tiles& tiles, PerDevice& arguments,
                         std::vector<BufferHandle>& held) const {
  for (std::size_t number = 0; number < tiles.size(); ++number) {
    const DeviceTile& place = port->tiles[number];
    const std::shared_ptr<const Copies> copies =
        on_its_devices(client_, port, place, tiles[number]);
    tiles[number]->set_copies(copies);
    for (const std::int64_t device : place.devices) {
      held.push_back(copies->find(device));
      arguments[static_cast<std::size_t>(device - first_device_)].push_back(held.back().get());
    }
  }
}

/// Donated inputs with a tile that another array holds too.
std::vector<std::int64_t> PjrtRunnable::not_donated(const std::vector<Tiles>& inputs) const {
  std::vector<std::int64_t> numbers;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const bool is_shared = std::any_of(inputs[i].begin(), inputs[i].end(),
                                       [](const BufferPtr& tile) { return tile.use_count() > 1; });
    if (is_donated_[i] && is_shared) numbers.push_back(static_cast<std::int64_t>(i));
  }
  return numbers;
}

std::vector<Tiles> PjrtRunnable::take_outputs(const PerDevice& outputs) const {
  std::vector<Tiles> taken;
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    const PortPtr& port = outputs_[i];
    Tiles tiles;
    for (const DeviceTile& tile : port->tiles) {
      auto copies = std::make_shared<Copies>(client_, port, tile.shape);
      for (const std::int64_t device : tile.devices) {
        const auto replica = static_cast<std::size_t>(device - first_device_);
        copies->add(device, client_.own(outputs[replica][i]));
      }
      tiles.push_back(
          std::make_shared<Buffer>(size_bytes({port->dtype, tile.shape}), std::move(copies)));
    }
    taken.push_back(std::move(tiles));
  }
  return taken;
}

std::vector<Tiles> PjrtRunnable::execute(std::vector<Tiles>& inputs,
                                         const std::function<void()>& on_begin) const {
  require(inputs.size() == inputs_.size(), "a program for devices gets all its inputs");
  // This must come before uploads hold tiles too.
  const std::vector<std::int64_t> kept = not_donated(inputs);
  PerDevice arguments(num_devices_);
  std::vector<BufferHandle> held;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::size_t before = held.size();
    place(inputs_[i], inputs[i], arguments, held);
    require(held.size() - before == num_devices_, "every device has a tile of every input");
  }
  PerDevice outputs(num_devices_, std::vector<abi::Buffer*>(outputs_.size(), nullptr));
  std::vector<abi::Buffer* const*> argument_lists;
  std::vector<abi::Buffer**> output_lists;
  for (std::size_t device = 0; device < num_devices_; ++device) {
    argument_lists.push_back(arguments[device].data());
    output_lists.push_back(outputs[device].data());
  }
  abi::ExecuteOptions options;
  options.struct_size = sizeof(options);
  options.not_donated = kept.data();
  options.num_not_donated = kept.size();
  abi::Execute execute;
  execute.loaded = loaded_;
  execute.options = &options;
  execute.arguments = argument_lists.data();
  execute.num_devices = num_devices_;
  execute.num_arguments = inputs.size();
  execute.outputs = output_lists.data();
  on_begin();
  client_.execute(execute, name_, first_device_);
  return take_outputs(outputs);
}

std::vector<Tiles> PjrtTransfer::execute(std::vector<Tiles>& inputs,
                                         const std::function<void()>& on_begin) const {
  on_begin();
  Tiles moved;
  for (std::size_t number = 0; number < port_->tiles.size(); ++number) {
    const DeviceTile& place = port_->tiles[number];
    const BufferPtr& tile = inputs[0][number];
    const auto all = on_its_devices(client_, port_, place, tile);
    auto there = std::make_shared<Copies>(client_, port_, place.shape);
    for (const std::int64_t device : place.devices) there->add(device, all->find(device));
    moved.push_back(std::make_shared<Buffer>(tile->size(), std::move(there)));
  }
  return {std::move(moved)};
}

}  // namespace tessera::run::pjrt
