#include <algorithm>
#include <cstring>

#include "compile/host/kernels/loop/loop_work.h"
#include "compile/host/kernels/tile/tile_program_internal.h"

namespace tessera::kernels::loops {

namespace {

BoxCopy box_of(const LoopProgram::Part& part, std::size_t element_bytes) {
  const std::vector<std::int64_t> array = row_major_strides(part.extents);
  const std::vector<std::int64_t> dense = row_major_strides(part.sizes);
  return part.is_written ? BoxCopy(dense, array, part.sizes, element_bytes)
                         : BoxCopy(array, dense, part.sizes, element_bytes);
}

/// Whether the part is one run of the array: after the first dimension in which it has more than
/// one index, it is as large as the array.
bool is_run(const LoopProgram::Part& part) {
  bool has_more = false;
  for (std::size_t d = 0; d < part.sizes.size(); ++d) {
    if (has_more && part.sizes[d] != part.extents[d]) return false;
    has_more = has_more || part.sizes[d] > 1;
  }
  return true;
}

}  // namespace

PartWork::PartWork(const LoopProgram::Part& part, const Memory& memory)
    : array_(&memory[part.array]),
      part_(memory[part.part]),
      is_written_(part.is_written),
      is_run_(is_run(part)),
      outside_(part.outside),
      box_(box_of(part, array_->element_bytes())) {
  const std::vector<std::int64_t> strides = row_major_strides(part.extents);
  for (std::size_t d = 0; d < strides.size(); ++d) {
    if (part.starts[d] < 0) continue;
    dims_.push_back({.start = memory[part.starts[d]].data,
                     .last = part.extents[d] - part.sizes[d],
                     .stride = strides[d] * static_cast<std::int64_t>(array_->element_bytes())});
  }
}

void PartWork::run() const {
  std::byte* place = array_->data;
  for (const Dim& dim : dims_) {
    std::int32_t given = 0;
    std::memcpy(&given, dim.start, sizeof(given));
    const std::int64_t start = std::clamp<std::int64_t>(given, 0, dim.last);
    if (start != given && !outside_.empty()) {
      if (is_written_) return;
      const Copy fill{.from = outside_.data(),
                      .offset = 0,
                      .bytes = part_.element_bytes(),
                      .count = part_.size};
      fill.run(part_.data);
      return part_.spread();
    }
    place += start * dim.stride;
  }
  if (is_written_ && is_run_) {
    tiles::copy_bytes(place, part_.data, part_.bytes());
  } else if (is_written_) {
    box_.run(part_.data, place);
  } else if (is_run_) {
    part_.fill(place);
  } else {
    box_.run(place, part_.data);
    part_.spread();
  }
}

}  // namespace tessera::kernels::loops
