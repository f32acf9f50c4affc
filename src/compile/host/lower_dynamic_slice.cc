// dynamic_slice and dynamic_update_slice: boxes whose position is known only at run time.
#include <algorithm>
#include <cstring>
#include <optional>

#include "compile/host/dense_tasks.h"
#include "compile/host/kernels/boxes.h"
#include "compile/host/lower.h"

namespace tessera::compile::host {

namespace {

/// One dimension of an array, of its tile, and of a part.
struct Line {
  std::int64_t total;  // of the array
  std::int64_t first;  // the first index of the tile
  std::int64_t count;
  std::int64_t part;
};

/// A part and the tile of the array. The position of the part is known once the starts are.
struct Place {
  std::vector<Line> lines;
  StridedTile array;
  StridedTile part;
  std::vector<std::int64_t> start_offsets;  // of the starts in their buffers
  std::size_t element_bytes;

  Shape part_shape() const {
    Shape shape;
    for (const Line& line : lines) shape.push_back(line.part);
    return shape;
  }

  /// The elements of the part that are in this tile.
  struct Overlap {
    std::int64_t array_bytes;  // before them
    std::int64_t part_bytes;
    std::optional<Shape> extents;  // nullopt: those of the whole part
  };
  Overlap overlap(std::span<std::byte* const> starts) const {
    std::int64_t in_array = array.offset;
    std::int64_t in_part = part.offset;
    bool is_whole = true;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const auto [start, begin, end] = range(i, starts);
      in_array += (begin - lines[i].first) * array.strides[i];
      in_part += (begin - start) * part.strides[i];
      is_whole = is_whole && end - begin == lines[i].part;
    }
    const auto bytes = static_cast<std::int64_t>(element_bytes);
    Overlap overlap{in_array * bytes, in_part * bytes, std::nullopt};
    if (is_whole) return overlap;
    overlap.extents.emplace();
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const Range line = range(i, starts);
      overlap.extents->push_back(std::max<std::int64_t>(line.end - line.begin, 0));
    }
    return overlap;
  }

 private:
  struct Range {
    std::int64_t start;  // of the part
    std::int64_t begin;  // of its elements in this tile
    std::int64_t end;
  };
  Range range(std::size_t i, std::span<std::byte* const> starts) const {
    const Line& line = lines[i];
    const std::int64_t start =
        std::clamp<std::int64_t>(reinterpret_cast<const std::int32_t*>(starts[i])[start_offsets[i]],
                                 0, line.total - line.part);
    return {start, std::max(start, line.first),
            std::min(start + line.part, line.first + line.count)};
  }
};

/// Elements of the part that are in other tiles are zero; the results of all devices are combined
/// by `or`.
class DynamicSliceKernel final : public run::Kernel {
 public:
  explicit DynamicSliceKernel(Place place)
      : place_(std::move(place)),
        part_(place_.part_shape()),
        whole_(place_.array.strides, place_.part.strides, part_, place_.element_bytes) {}

  void run(std::span<std::byte* const> buffers, int /*part*/) const override {
    const Place::Overlap here = place_.overlap(buffers.subspan(1));
    const std::byte* from = buffers[0] + here.array_bytes;
    std::byte* to = buffers.back() + here.part_bytes;
    if (!here.extents) return whole_.run(from, to);
    const auto count = static_cast<std::size_t>(num_elements(part_));
    std::memset(buffers.back(), 0, count * place_.element_bytes);
    if (num_elements(*here.extents) == 0) return;
    kernels::copy_box(from, place_.array.strides, to, place_.part.strides, *here.extents,
                      place_.element_bytes);
  }

 private:
  Place place_;
  Shape part_;
  kernels::BoxCopy whole_;
};

/// The elements of the update that fall into this tile are written into a copy of the operand, or
/// into the operand itself if they share memory.
class UpdateKernel final : public run::Kernel {
 public:
  explicit UpdateKernel(Place place)
      : place_(std::move(place)),
        whole_(place_.part.strides, place_.array.strides, place_.part_shape(),
               place_.element_bytes) {
    bytes_ = place_.element_bytes;
    for (const Line& line : place_.lines) bytes_ *= static_cast<std::size_t>(line.count);
  }

  void run(std::span<std::byte* const> buffers, int /*part*/) const override {
    if (buffers.back() != buffers[0]) std::memcpy(buffers.back(), buffers[0], bytes_);
    const Place::Overlap here = place_.overlap(buffers.subspan(2));
    const std::byte* from = buffers[1] + here.part_bytes;
    std::byte* to = buffers.back() + here.array_bytes;
    if (!here.extents) return whole_.run(from, to);
    if (num_elements(*here.extents) == 0) return;
    kernels::copy_box(from, place_.part.strides, to, place_.array.strides, *here.extents,
                      place_.element_bytes);
  }

 private:
  Place place_;
  kernels::BoxCopy whole_;
  std::size_t bytes_;  // of this tile of the array
};

/// Adds the operands from `first` on to the reads of the task.
void read_starts(const LowerContext& context, const Equation& equation, std::size_t first,
                 const AtomDigits& digits, Place& place, TileTask& task) {
  for (std::size_t i = first; i < equation.operands.size(); ++i) {
    const StridedTile start = context.read(equation.operands[i], digits);
    place.start_offsets.push_back(start.offset);
    task.reads.push_back(start.tile);
  }
}

/// If the part covers a dimension completely, both are split the same way along it, so the part is
/// the whole tile there.
std::vector<Line> lines_of(const LowerContext& context, ValueId array, ValueId part,
                           const AtomDigits& digits) {
  const Shape& shape = context.layout(array).shape();
  const Shape& part_shape = context.layout(part).shape();
  const Box box = context.box(array, digits);
  std::vector<Line> lines;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const std::int64_t count = box.size[d];
    const bool is_filled = shape[d] == part_shape[d];
    lines.push_back(
        is_filled
            ? Line{.total = count, .first = 0, .count = count, .part = count}
            : Line{
                  .total = shape[d], .first = box.start[d], .count = count, .part = part_shape[d]});
  }
  return lines;
}

std::vector<TileTask> lower_dynamic_slice(const LowerContext& context, const Equation& equation) {
  const ValueId result = equation.results[0];
  const Layout& layout = context.layout(result);
  std::vector<TileTask> tasks;
  for (std::int64_t tile : context.tiles(result)) {
    const AtomDigits digits = layout.digits(tile);
    const StridedTile from = context.read(equation.operands[0], digits);
    TileTask task{.kernel = {}, .reads = {from.tile}, .writes = {{result, tile}}, .may_share = {}};
    Place place{.lines = lines_of(context, equation.operands[0], result, digits),
                .array = from,
                .part = {.tile = {result, tile},
                         .offset = 0,
                         .strides = row_major_strides(layout.box(tile).size)},
                .start_offsets = {},
                .element_bytes = size_bytes(context.function().type(result).dtype)};
    read_starts(context, equation, 1, digits, place, task);
    task.kernel = std::make_shared<DynamicSliceKernel>(std::move(place));
    task.touched_bytes = 2 * box_bytes(context, result, digits);
    tasks.push_back(std::move(task));
  }
  return tasks;
}

std::vector<TileTask> lower_dynamic_update_slice(const LowerContext& context,
                                                 const Equation& equation) {
  const ValueId result = equation.results[0];
  const Layout& layout = context.layout(result);
  std::vector<TileTask> tasks;
  for (std::int64_t tile : context.tiles(result)) {
    const AtomDigits digits = layout.digits(tile);
    const StridedTile from = context.read(equation.operands[0], digits);
    const StridedTile update = context.read(equation.operands[1], digits);
    TileTask task{.kernel = {},
                  .reads = {from.tile, update.tile},
                  .writes = {{result, tile}},
                  .may_share = {{0, 0}}};
    Place place{.lines = lines_of(context, result, equation.operands[1], digits),
                .array = from,
                .part = update,
                .start_offsets = {},
                .element_bytes = size_bytes(context.function().type(result).dtype)};
    read_starts(context, equation, 2, digits, place, task);
    task.kernel = std::make_shared<UpdateKernel>(std::move(place));
    task.touched_bytes = 2 * box_bytes(context, equation.operands[1], digits);
    tasks.push_back(std::move(task));
  }
  return tasks;
}

}  // namespace

Lowerings dynamic_slice_lowerings() {
  return {{"dynamic_slice", lower_dynamic_slice, false},
          {"dynamic_update_slice", lower_dynamic_update_slice, true}};
}

}  // namespace tessera::compile::host
