#include "plugin/buffer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <tessera/error.h>

#include "plugin/call.h"
#include "run/pjrt/elements.h"

namespace tessera::run::pjrt::abi {

Buffer::Buffer(ElementType element, std::vector<std::int64_t> sizes, Memory* in,
               tessera::plugin::TilePtr tile)
    : type(element), dims(std::move(sizes)), memory(in), tile_(std::move(tile)) {
  for (std::size_t i = dims.size(); i-- > 0;) {
    minor_to_major.push_back(static_cast<std::int64_t>(i));
  }
}

std::size_t Buffer::num_bytes() const {
  std::size_t bytes = element_bytes(type);
  for (const std::int64_t size : dims) bytes *= static_cast<std::size_t>(size);
  return bytes;
}

tessera::plugin::TilePtr Buffer::tile() const {
  const std::lock_guard lock(mutex_);
  if (tile_ != nullptr) return tile_;
  throw UserError(
      {.what = "tessera: the array was deleted or donated, so it no longer has values",
       .wanted = "an array that has not been deleted or donated",
       .cure = "use the array that the call returned, or remove the argument from donate_argnums"});
}

bool Buffer::is_deleted() const {
  const std::lock_guard lock(mutex_);
  return tile_ == nullptr;
}

tessera::plugin::TilePtr Buffer::release() {
  const std::lock_guard lock(mutex_);
  return std::exchange(tile_, nullptr);
}

}  // namespace tessera::run::pjrt::abi

namespace tessera::plugin {

namespace {

/// Copies the elements of a strided array into a row of bytes, dimension by dimension.
std::byte* copy_strided(const abi::BufferFromHost& a, std::size_t dim, const std::byte* from,
                        std::size_t width, std::byte* to) {
  if (dim == a.num_dims) {
    std::memcpy(to, from, width);
    return to + width;
  }
  for (std::int64_t i = 0; i < a.dims[dim]; ++i) {
    to = copy_strided(a, dim + 1, from + i * a.byte_strides[dim], width, to);
  }
  return to;
}

bool is_dense(const abi::BufferFromHost& a, std::size_t width) {
  if (a.num_byte_strides == 0) return true;
  auto stride = static_cast<std::int64_t>(width);
  for (std::size_t i = a.num_dims; i-- > 0;) {
    if (a.dims[i] != 1 && a.byte_strides[i] != stride) return false;
    stride *= a.dims[i];
  }
  return true;
}

void from_host(abi::BufferFromHost& a) {
  const std::size_t width = run::pjrt::element_bytes(a.type);
  if (width == 0) {
    throw UserError({.what = "tessera: arrays of this element type are not supported",
                     .found = "element type number " + std::to_string(static_cast<int>(a.type)),
                     .wanted = "elements that take whole bytes",
                     .cure = "convert the array before it is put on a device"});
  }
  abi::Memory* const memory = a.memory != nullptr ? a.memory : a.device->memories[0];
  auto tile = std::make_shared<Tile>(Tile{.ready = completed(), .data = nullptr});
  auto buffer = std::make_unique<abi::Buffer>(
      a.type, std::vector<std::int64_t>(a.dims, a.dims + a.num_dims), memory, tile);
  const std::size_t bytes = buffer->num_bytes();
  tile->data = std::make_shared<run::Buffer>(static_cast<std::int64_t>(bytes));
  if (bytes == 0) {
  } else if (is_dense(a, width)) {
    std::memcpy(tile->data->data(), a.data, bytes);
  } else {
    copy_strided(a, 0, static_cast<const std::byte*>(a.data), width, tile->data->data());
  }
  run::pjrt::wrap_elements(a.type, {tile->data->data(), bytes});
  a.buffer = buffer.release();
  a.done_with_host_buffer = new abi::Event{completed()};
}

/// Whether the host wants the elements in another order than row-major.
bool is_other_order(const abi::Buffer& buffer, const abi::MemoryLayout* layout) {
  if (layout == nullptr) return false;
  const std::span<const std::int64_t> wanted(layout->tiled.minor_to_major, layout->tiled.num_dims);
  return layout->type != 0 || layout->tiled.num_tiles != 0 ||
         !std::equal(wanted.begin(), wanted.end(), buffer.minor_to_major.begin(),
                     buffer.minor_to_major.end());
}

void to_host(abi::BufferToHost& a) {
  const std::size_t bytes = a.buffer->num_bytes();
  if (a.data == nullptr) {
    a.data_size = bytes;
    return;
  }
  if (a.data_size < bytes || is_other_order(*a.buffer, a.layout)) {
    throw UserError({.what = "tessera: the array cannot be copied to this memory",
                     .found = std::to_string(a.data_size) +
                              " bytes, or an order of elements other than row-major",
                     .wanted = std::to_string(bytes) + " bytes, row-major",
                     .cure = "read it with numpy.asarray"});
  }
  const TilePtr tile = a.buffer->tile();
  auto copied = std::make_shared<Completion>();
  void* const to = a.data;
  awaited(tile->ready)->when_done([tile, copied, to, bytes](const FailurePtr& failure) {
    if (failure == nullptr && bytes != 0) std::memcpy(to, tile->data->data(), bytes);
    copied->finish(failure);
  });
  a.event = new abi::Event{copied};
}

abi::Buffer* shared_with(const abi::Buffer& buffer, abi::Memory* memory) {
  return new abi::Buffer(buffer.type, buffer.dims, memory, buffer.tile());
}

void copy_to_device(abi::BufferCopyToDevice& a) {
  a.copy = shared_with(*a.buffer, a.device->memories[0]);
}
void copy_to_memory(abi::BufferCopyToMemory& a) { a.copy = shared_with(*a.buffer, a.memory); }

void destroy(abi::BufferDestroy& a) { delete a.buffer; }
void element_type_of(abi::BufferElementType& a) { a.value = a.object->type; }
void dimensions(abi::BufferDimensions& a) { set_list(a, a.object->dims); }
void unpadded(abi::BufferUnpadded& a) { set_list(a, a.object->dims); }
void dynamic(abi::BufferDynamic& a) { set_list(a, std::span<std::size_t>()); }

void layout(abi::BufferLayout& a) {
  a.value = {};
  a.value.struct_size = sizeof(abi::MemoryLayout);
  a.value.tiled.struct_size = sizeof(abi::TiledLayout);
  a.value.tiled.minor_to_major = a.object->minor_to_major.data();
  a.value.tiled.num_dims = a.object->minor_to_major.size();
}

void size(abi::BufferSize& a) { a.value = a.object->num_bytes(); }
void device(abi::BufferDevice& a) { a.value = a.object->memory->device; }
void memory(abi::BufferMemory& a) { a.value = a.object->memory; }
void remove(abi::BufferDelete& a) { a.object->release(); }
void is_deleted(abi::BufferIsDeleted& a) { a.value = a.object->is_deleted(); }
// Otherwise JAX would keep pointers to memory that a donation may overwrite.
void is_on_cpu(abi::BufferIsOnCpu& a) { a.value = false; }
void ready_event(abi::BufferReadyEvent& a) {
  a.value = new abi::Event{awaited(a.object->tile()->ready)};
}

std::byte* data_of(const abi::Buffer& buffer) {
  const TilePtr tile = buffer.tile();
  if (const FailurePtr failure = tile->ready->wait()) throw Failed(failure);
  return tile->data->data();
}

void address(abi::BufferAddress& a) {
  a.value = reinterpret_cast<std::uintptr_t>(data_of(*a.object));
}
void data(abi::BufferData& a) { a.value = data_of(*a.object); }

// --- events

void event_destroy(abi::EventDestroy& a) { delete a.event; }
void event_is_ready(abi::EventIsReady& a) { a.is_ready = a.event->completion->is_done(); }

void event_await(abi::EventAwait& a) {
  if (const FailurePtr failure = a.event->completion->wait()) throw Failed(failure);
}

void event_error(abi::EventError& a) {
  if (const FailurePtr failure = a.event->completion->wait()) throw Failed(failure);
}

void event_on_ready(abi::EventOnReady& a) {
  a.event->completion->when_done([callback = a.callback, data = a.data](const FailurePtr& failure) {
    callback(error_of(failure), data);
  });
}

}  // namespace

void fill_buffer_functions(abi::PluginApi& api) {
  enter<abi::EventDestroy, event_destroy>(api);
  enter<abi::EventIsReady, event_is_ready>(api);
  enter<abi::EventError, event_error>(api);
  enter<abi::EventAwait, event_await>(api);
  enter<abi::EventOnReady, event_on_ready>(api);
  enter<abi::BufferFromHost, from_host>(api);
  enter<abi::BufferToHost, to_host>(api);
  enter<abi::BufferCopyToDevice, copy_to_device>(api);
  enter<abi::BufferCopyToMemory, copy_to_memory>(api);
  enter<abi::BufferDestroy, destroy>(api);
  enter<abi::BufferElementType, element_type_of>(api);
  enter<abi::BufferDimensions, dimensions>(api);
  enter<abi::BufferUnpadded, unpadded>(api);
  enter<abi::BufferDynamic, dynamic>(api);
  enter<abi::BufferLayout, layout>(api);
  enter<abi::BufferSize, size>(api);
  enter<abi::BufferDevice, device>(api);
  enter<abi::BufferMemory, memory>(api);
  enter<abi::BufferDelete, remove>(api);
  enter<abi::BufferIsDeleted, is_deleted>(api);
  enter<abi::BufferIsOnCpu, is_on_cpu>(api);
  enter<abi::BufferReadyEvent, ready_event>(api);
  enter<abi::BufferAddress, address>(api);
  enter<abi::BufferData, data>(api);
  enter<abi::AddReference, ignore>(api);
  enter<abi::DropReference, ignore>(api);
}

}  // namespace tessera::plugin
