// Interned placements, and moving tiles between layouts by copying boxes.
#include <algorithm>
#include <cstring>
#include <unordered_map>

#include <tessera/error.h>

#include "api/array_node.h"

namespace tessera::detail {

namespace {

/// Values by their text; addresses stay valid.
template <typename T>
class Interned {
 public:
  template <typename Make>
  const T* find(const std::string& key, Make make) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto [place, is_new] = items_.try_emplace(key);
    if (is_new) place->second = std::make_unique<const T>(make());
    return place->second.get();
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, std::unique_ptr<const T>> items_;
};

/// Copies the elements of `box` between two arrays that hold the boxes `from_box` and `to_box`.
void copy_box(const Box& box, std::size_t element, const Box& from_box, const std::byte* from,
              const Box& to_box, std::byte* to) {
  const std::size_t rank = box.start.size();
  for (std::int64_t size : box.size) {
    if (size <= 0) return;
  }
  if (rank == 0) {
    std::memcpy(to, from, element);
    return;
  }
  const auto from_strides = row_major_strides(from_box.size);
  const auto to_strides = row_major_strides(to_box.size);
  const std::size_t run_bytes = static_cast<std::size_t>(box.size.back()) * element;
  std::vector<std::int64_t> index(box.start);
  while (true) {
    std::int64_t from_offset = 0;
    std::int64_t to_offset = 0;
    for (std::size_t dim = 0; dim < rank; ++dim) {
      from_offset += (index[dim] - from_box.start[dim]) * from_strides[dim];
      to_offset += (index[dim] - to_box.start[dim]) * to_strides[dim];
    }
    std::memcpy(to + static_cast<std::size_t>(to_offset) * element,
                from + static_cast<std::size_t>(from_offset) * element, run_bytes);
    std::size_t dim = rank - 1;
    while (dim > 0) {
      --dim;
      if (++index[dim] < box.start[dim] + box.size[dim]) break;
      index[dim] = box.start[dim];
      if (dim == 0) return;
    }
    if (rank == 1) return;
  }
}

Box overlap(const Box& a, const Box& b) {
  Box box;
  for (std::size_t dim = 0; dim < a.start.size(); ++dim) {
    const std::int64_t start = std::max(a.start[dim], b.start[dim]);
    const std::int64_t limit = std::min(a.start[dim] + a.size[dim], b.start[dim] + b.size[dim]);
    box.start.push_back(start);
    box.size.push_back(limit - start);
  }
  return box;
}

Box whole(const Shape& shape) {
  return {.start = std::vector<std::int64_t>(shape.size(), 0), .size = shape};
}

std::int64_t box_bytes(const Box& box, DType dtype) {
  return num_elements(box.size) * static_cast<std::int64_t>(size_bytes(dtype));
}

}  // namespace

const ParamInfo* intern(ParamInfo info) {
  static auto* table = new Interned<ParamInfo>;
  const std::string key =
      info.path + '\n' + (info.is_annotated ? to_string(info.spec) : std::string());
  return table->find(key, [&] { return std::move(info); });
}

const Placement* placement_of(const Type& type, const Mesh& mesh, const Sharding& sharding) {
  static auto* table = new Interned<Placement>;
  std::string key = to_string(type) + to_string(mesh);
  for (const AtomList& dim : sharding.dims) {
    key.append(reinterpret_cast<const char*>(dim.data()), dim.size());
    key += '|';
  }
  return table->find(key, [&] {
    return Placement{type, mesh, sharding, Layout(mesh, sharding, type.shape)};
  });
}

const Placement* replicated_placement(const Type& type, const Mesh& mesh) {
  return placement_of(type, mesh, replicated_sharding(type.rank()));
}

std::mutex& donation_mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

run::Tiles move_tiles(const Placement& from, const run::Tiles& tiles, const Placement& to) {
  if (from.layout.num_tiles() == 1 && to.layout.num_tiles() == 1) return tiles;
  if (from.mesh == to.mesh && from.sharding == to.sharding) return tiles;
  const std::size_t element = size_bytes(to.type.dtype);
  std::vector<Box> sources;
  for (std::int64_t i = 0; i < from.layout.num_tiles(); ++i) sources.push_back(from.layout.box(i));
  run::Tiles moved;
  for (std::int64_t i = 0; i < to.layout.num_tiles(); ++i) {
    const Box box = to.layout.box(i);
    auto buffer = std::make_shared<run::Buffer>(box_bytes(box, to.type.dtype));
    for (std::size_t k = 0; k < sources.size(); ++k) {
      copy_box(overlap(box, sources[k]), element, sources[k], tiles[k]->data(), box,
               buffer->data());
    }
    moved.push_back(std::move(buffer));
  }
  return moved;
}

ops::HostArray gather(const Placement& from, const run::Tiles& tiles) {
  ops::HostArray array(from.type);
  const Box all = whole(from.type.shape);
  for (std::size_t k = 0; k < tiles.size(); ++k) {
    const Box box = from.layout.box(static_cast<std::int64_t>(k));
    copy_box(box, size_bytes(from.type.dtype), box, tiles[k]->data(), all, array.bytes().data());
  }
  return array;
}

run::Tiles scatter(const ops::HostArray& array, const Placement& to) {
  const Box all = whole(to.type.shape);
  run::Tiles tiles;
  for (std::int64_t i = 0; i < to.layout.num_tiles(); ++i) {
    const Box box = to.layout.box(i);
    auto buffer = std::make_shared<run::Buffer>(box_bytes(box, to.type.dtype));
    copy_box(box, size_bytes(to.type.dtype), all, array.bytes().data(), box, buffer->data());
    tiles.push_back(std::move(buffer));
  }
  return tiles;
}

}  // namespace tessera::detail
