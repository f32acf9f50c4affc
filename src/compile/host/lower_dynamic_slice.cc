// dynamic_slice and dynamic_update_slice: boxes whose place is known at run time.
#include <algorithm>
#include <cstring>

#include "compile/host/kernels/boxes.h"
#include "compile/host/lower.h"

namespace tessera::compile::host {

namespace {

/// A box of `part` elements in an array of shape `whole` with these strides.
struct Place {
  Shape whole;
  Shape part;
  std::vector<std::int64_t> strides;
  std::int64_t offset;
  std::vector<std::int64_t> start_offsets;  // of the starts in their buffers
  std::size_t element_bytes;

  /// The bytes before the box, from the buffers of the starts.
  std::int64_t bytes_before(std::span<std::byte* const> starts) const {
    std::int64_t elements = offset;
    for (std::size_t i = 0; i < whole.size(); ++i) {
      const auto start = reinterpret_cast<const std::int32_t*>(starts[i])[start_offsets[i]];
      elements += strides[i] * std::clamp<std::int64_t>(start, 0, whole[i] - part[i]);
    }
    return elements * static_cast<std::int64_t>(element_bytes);
  }
};

class DynamicSliceKernel final : public run::Kernel {
 public:
  explicit DynamicSliceKernel(Place place) : place_(std::move(place)) {}

  void run(std::span<std::byte* const> buffers, int /*part*/) const override {
    if (num_elements(place_.part) == 0) return;
    kernels::copy_box(buffers[0] + place_.bytes_before(buffers.subspan(1)), place_.strides,
                      buffers.back(), row_major_strides(place_.part), place_.part,
                      place_.element_bytes);
  }

 private:
  Place place_;
};

/// The update's box goes into a copy of the operand, or into the operand itself where they share
/// memory.
class UpdateKernel final : public run::Kernel {
 public:
  UpdateKernel(Place place, StridedTile update)
      : place_(std::move(place)), update_(std::move(update)) {}

  void run(std::span<std::byte* const> buffers, int /*part*/) const override {
    const auto bytes = static_cast<std::int64_t>(place_.element_bytes);
    if (buffers.back() != buffers[0]) {
      std::memcpy(buffers.back(), buffers[0],
                  static_cast<std::size_t>(num_elements(place_.whole) * bytes));
    }
    if (num_elements(place_.part) == 0) return;
    kernels::copy_box(buffers[1] + update_.offset * bytes, update_.strides,
                      buffers.back() + place_.bytes_before(buffers.subspan(2)), place_.strides,
                      place_.part, place_.element_bytes);
  }

 private:
  Place place_;
  StridedTile update_;
};

/// Adds the operands from `first` on to what the task reads.
void read_starts(const LowerContext& context, const Equation& equation, std::size_t first,
                 const AtomDigits& digits, Place& place, TileTask& task) {
  for (std::size_t i = first; i < equation.operands.size(); ++i) {
    const StridedTile start = context.read(equation.operands[i], digits);
    place.start_offsets.push_back(start.offset);
    task.reads.push_back(start.tile);
  }
}

Place place_in(const LowerContext& context, ValueId whole, ValueId part, const StridedTile& tile,
               const AtomDigits& digits) {
  return {.whole = context.box(whole, digits).size,
          .part = context.box(part, digits).size,
          .strides = tile.strides,
          .offset = tile.offset,
          .start_offsets = {},
          .element_bytes = size_bytes(context.function().type(whole).dtype)};
}

std::vector<TileTask> lower_dynamic_slice(const LowerContext& context, const Equation& equation) {
  const ValueId result = equation.results[0];
  const Layout& layout = context.layout(result);
  std::vector<TileTask> tasks;
  for (std::int64_t tile : context.tiles(result)) {
    const AtomDigits digits = layout.digits(tile);
    const StridedTile from = context.read(equation.operands[0], digits);
    TileTask task{.kernel = {}, .reads = {from.tile}, .writes = {{result, tile}}, .may_share = {}};
    Place place = place_in(context, equation.operands[0], result, from, digits);
    read_starts(context, equation, 1, digits, place, task);
    task.kernel = std::make_shared<DynamicSliceKernel>(std::move(place));
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
    Place place = place_in(context, equation.operands[0], equation.operands[1], from, digits);
    read_starts(context, equation, 2, digits, place, task);
    task.kernel = std::make_shared<UpdateKernel>(std::move(place), update);
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
