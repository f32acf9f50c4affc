#include "run/tiles/tiled.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>

#include <tessera/error.h>

#include "mesh/blocks.h"
#include "run/world.h"

namespace tessera::run {

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

Box whole(const Shape& shape) {
  return {.start = std::vector<std::int64_t>(shape.size(), 0), .size = shape};
}

namespace {

std::int64_t box_bytes(const Box& box, DType dtype) {
  return num_elements(box.size) * static_cast<std::int64_t>(size_bytes(dtype));
}

bool is_empty(const Box& box) { return num_elements(box.size) == 0; }

/// Which processes hold which tiles of an array. The processes of each copy have consecutive ranks.
class Spread {
 public:
  Spread(const Placement& placement, HolderGroups groups)
      // A process that computes for all devices has the tiles of all groups.
      : groups_(world().transport == nullptr ? nullptr : std::move(groups)),
        per_copy_(world().processes_of(placement.mesh)),
        blocks_(placement.mesh, per_copy_),
        holders_(blocks_, placement.layout) {}
  Spread(const Spread&) = delete;
  Spread& operator=(const Spread&) = delete;

  bool holds(int rank) const { return is_held_by(groups_, world().group_of(rank)); }
  bool has(int rank, std::int64_t tile) const {
    return holds(rank) && holders_.has(rank % per_copy_, tile);
  }
  std::vector<std::int64_t> tiles(int rank, const Layout& layout) const {
    if (!holds(rank)) return {};
    return blocks_.tiles(rank % per_copy_, layout);
  }
  /// The process from which `reader` gets a tile: itself if it has the tile, otherwise a process of
  /// its copy or, if it has no copy, of any copy. The holders serve about equally many readers.
  int sender(int reader, std::int64_t tile) const {
    if (has(reader, tile)) return reader;
    std::vector<int> found = holders_of(tile, reader / per_copy_);
    for (int copy = 0; found.empty(); ++copy) {
      require(copy * per_copy_ < world().size(), "a process holds every tile");
      found = holders_of(tile, copy);
    }
    const auto number = static_cast<std::size_t>(reader % per_copy_) * found.size() /
                        static_cast<std::size_t>(per_copy_);
    return found[number];
  }

 private:
  std::vector<int> holders_of(std::int64_t tile, int copy) const {
    std::vector<int> found;
    for (const Holders::Holder& holder : holders_.of(tile)) {
      const int rank = copy * per_copy_ + static_cast<int>(holder.block);
      if (holds(rank)) found.push_back(rank);
    }
    return found;
  }

  HolderGroups groups_;
  int per_copy_;
  Blocks blocks_;
  Holders holders_;
};

/// Where this process wants the elements of a box.
struct Wanted {
  Box box;
  std::byte* data;
};

/// The boxes that a process wants.
using BoxesOf = std::function<std::vector<Box>(int rank)>;

/// Fills the targets of all processes.
class Fetch {
 public:
  Fetch(const Tiled& from, const BoxesOf& boxes_of, std::vector<Wanted> targets)
      : from_(from),
        element_(size_bytes(from.placement->type.dtype)),
        spread_(*from.placement, from.groups),
        targets_(std::move(targets)) {
    for (std::int64_t tile = 0; tile < from.placement->layout.num_tiles(); ++tile) {
      boxes_.push_back(from.placement->layout.box(tile));
    }
    if (spread_.holds(world().rank())) held_ = held_tiles(*from.placement);
    for (int reader = 0; reader < world().size(); ++reader) add_reader(reader, boxes_of(reader));
  }

  void run(const CollectiveLabel& label) {
    if (is_sent_) {
      std::vector<Transport::Send> sends;
      for (const Message& send : sends_) sends.push_back({send.peer, bytes_of(send)});
      std::vector<Transport::Receive> receives;
      for (const Message& receive : receives_)
        receives.push_back({receive.peer, bytes_of(receive)});
      world().transport->begin(label);
      world().transport->exchange(sends, receives);
    }
    for (const Message& receive : receives_) {
      const Wanted& target = targets_[receive.target];
      copy_box(receive.part, element_, receive.part, receive.data->data(), target.box, target.data);
    }
  }

 private:
  struct Message {
    int peer;
    Box part;
    BufferPtr data;
    std::size_t target = 0;
  };

  static std::span<std::byte> bytes_of(const Message& message) {
    return {message.data->data(), static_cast<std::size_t>(message.data->size())};
  }

  void add_reader(int reader, const std::vector<Box>& wanted) {
    const int own = world().rank();
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      for (std::size_t tile = 0; tile < boxes_.size(); ++tile) {
        const Box part = intersect(wanted[i], boxes_[tile]);
        if (is_empty(part)) continue;
        const int sender = spread_.sender(reader, static_cast<std::int64_t>(tile));
        if (sender != reader) is_sent_ = true;
        if (reader == own) {
          add_part(i, tile, part, sender);
        } else if (sender == own) {
          sends_.push_back({.peer = reader, .part = part, .data = packed(tile, part)});
        }
      }
    }
  }

  void add_part(std::size_t target, std::size_t tile, const Box& part, int sender) {
    if (sender == world().rank()) {
      copy_box(part, element_, boxes_[tile], held(tile)->data(), targets_[target].box,
               targets_[target].data);
      return;
    }
    receives_.push_back({.peer = sender,
                         .part = part,
                         .data = std::make_shared<Buffer>(bytes(part)),
                         .target = target});
  }

  std::int64_t bytes(const Box& part) const { return box_bytes(part, from_.placement->type.dtype); }

  const BufferPtr& held(std::size_t tile) const {
    const auto place =
        std::lower_bound(held_.begin(), held_.end(), static_cast<std::int64_t>(tile));
    return from_.tiles[static_cast<std::size_t>(place - held_.begin())];
  }

  BufferPtr packed(std::size_t tile, const Box& part) const {
    if (part == boxes_[tile]) return held(tile);
    auto data = std::make_shared<Buffer>(bytes(part));
    copy_box(part, element_, boxes_[tile], held(tile)->data(), part, data->data());
    return data;
  }

  const Tiled& from_;
  std::size_t element_;
  Spread spread_;
  std::vector<Wanted> targets_;
  std::vector<Box> boxes_;          // per tile
  std::vector<std::int64_t> held_;  // by this process
  std::vector<Message> sends_, receives_;
  bool is_sent_ = false;  // by any process to any other
};

/// Makes buffers for boxes.
Tiles buffers_for(const std::vector<Box>& boxes, DType dtype, std::vector<Wanted>& targets) {
  Tiles tiles;
  for (const Box& box : boxes) {
    tiles.push_back(std::make_shared<Buffer>(box_bytes(box, dtype)));
    targets.push_back({box, tiles.back()->data()});
  }
  return tiles;
}

}  // namespace

bool is_held_by(const HolderGroups& groups, std::int64_t group) {
  return groups == nullptr || std::binary_search(groups->begin(), groups->end(), group);
}

bool is_held_here(const HolderGroups& groups) {
  return world().transport == nullptr || is_held_by(groups, world().group());
}

std::vector<std::int64_t> held_tiles(const Placement& placement) {
  if (world().transport != nullptr) {
    const int count = world().processes_of(placement.mesh);
    return Blocks(placement.mesh, count).tiles(world().rank() % count, placement.layout);
  }
  std::vector<std::int64_t> all(static_cast<std::size_t>(placement.layout.num_tiles()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

Tiled move_tiles(const Tiled& from, const PlacementPtr& to, const CollectiveLabel& label) {
  const Placement& source = *from.placement;
  const bool has_same_devices = world().transport == nullptr || source.mesh == to->mesh;
  const bool is_alike =
      has_same_devices && source.mesh.axes() == to->mesh.axes() && source.sharding == to->sharding;
  if ((source.layout.num_tiles() == 1 && to->layout.num_tiles() == 1) || is_alike) {
    return {to, from.tiles, from.groups};
  }
  const Spread spread(*to, from.groups);
  const auto boxes_of = [&](int rank) {
    std::vector<Box> boxes;
    for (const std::int64_t tile : spread.tiles(rank, to->layout)) {
      boxes.push_back(to->layout.box(tile));
    }
    return boxes;
  };
  std::vector<Wanted> targets;
  Tiles tiles = buffers_for(boxes_of(world().rank()), to->type.dtype, targets);
  Fetch(from, boxes_of, std::move(targets)).run(label);
  return {to, std::move(tiles), from.groups};
}

void gather(const Tiled& from, std::span<std::byte> to, const CollectiveLabel& label) {
  const Box box = whole(from.placement->type.shape);
  const auto boxes_of = [&](int) { return std::vector<Box>{box}; };
  Fetch(from, boxes_of, {{box, to.data()}}).run(label);
}

BufferPtr gather_tile(const Tiled& from, std::int64_t tile, const CollectiveLabel& label) {
  const Placement& placement = *from.placement;
  if (world().transport == nullptr) return from.tiles[static_cast<std::size_t>(tile)];
  const auto boxes_of = [box = placement.layout.box(tile)](int) { return std::vector<Box>{box}; };
  std::vector<Wanted> targets;
  const Tiles tiles = buffers_for(boxes_of(world().rank()), placement.type.dtype, targets);
  Fetch(from, boxes_of, std::move(targets)).run(label);
  return tiles[0];
}

Tiled bring(Tiled x, const HolderGroups& groups, const CollectiveLabel& label) {
  const World& here = world();
  if (here.transport == nullptr) return {x.placement, std::move(x.tiles), groups};
  const int per_group = here.processes_per_group();
  const std::vector<std::int64_t> held = held_tiles(*x.placement);
  const auto bytes = [](const BufferPtr& tile) {
    return std::span(tile->data(), static_cast<std::size_t>(tile->size()));
  };
  std::vector<Transport::Send> sends;
  std::vector<Transport::Receive> receives;
  bool is_sent = false;
  for (int rank = 0; rank < here.size(); ++rank) {
    const int group = here.group_of(rank);
    if (!is_held_by(groups, group) || is_held_by(x.groups, group)) continue;
    is_sent = true;
    const int from = static_cast<int>(x.groups->front()) * per_group + rank % per_group;
    if (rank == here.rank()) {
      for (const std::int64_t tile : held) {
        x.tiles.push_back(std::make_shared<Buffer>(
            box_bytes(x.placement->layout.box(tile), x.placement->type.dtype)));
        receives.push_back({from, bytes(x.tiles.back())});
      }
    } else if (from == here.rank()) {
      for (const BufferPtr& tile : x.tiles) sends.push_back({rank, bytes(tile)});
    }
  }
  if (is_sent) {
    here.transport->begin(label);
    here.transport->exchange(sends, receives);
  }
  if (!is_held_here(groups)) x.tiles.clear();
  return {x.placement, std::move(x.tiles), groups};
}

Tiles cut(std::span<const std::byte> whole_array, const Placement& to) {
  const Box all = whole(to.type.shape);
  Tiles tiles;
  for (const std::int64_t tile : held_tiles(to)) {
    const Box box = to.layout.box(tile);
    tiles.push_back(std::make_shared<Buffer>(box_bytes(box, to.type.dtype)));
    copy_box(box, size_bytes(to.type.dtype), all, whole_array.data(), box, tiles.back()->data());
  }
  return tiles;
}

}  // namespace tessera::run
