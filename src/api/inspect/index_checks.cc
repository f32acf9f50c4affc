#include "api/inspect/index_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tessera/error.h>

#include "api/apply.h"
#include "api/context/settings.h"
#include "api/inspect/call_when_run.h"

namespace tessera::detail {

namespace {

int& num_unchecked() {
  static thread_local int count = 0;
  return count;
}

/// `[2,0]`: the position of an element in row-major order.
std::string position_text(const Shape& shape, std::int64_t element) {
  Shape position(shape.size());
  for (std::size_t i = shape.size(); i-- > 0;) {
    position[i] = element % shape[i];
    element /= shape[i];
  }
  return to_string(position);
}

void check_values(const ops::HostArray& indices, const IndexBound& bound, const Span& where) {
  const std::span<const std::int32_t> values = indices.data<std::int32_t>();
  std::int64_t first = -1;
  std::int64_t count = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] >= 0 && values[i] < bound.size) continue;
    if (count++ == 0) first = static_cast<std::int64_t>(i);
  }
  if (count == 0) return;
  std::string found = fmt::format("{}", values[static_cast<std::size_t>(first)]);
  if (indices.type().rank() > 0) {
    found += fmt::format(" at position {} of {}", position_text(indices.type().shape, first),
                         to_string(indices.type()));
  }
  if (count > 1) found += fmt::format(", and {} more", count - 1);
  throw UserError(
      {.what = fmt::format("{}: an index is out of range", bound.op),
       .where = where,
       .found = std::move(found),
       .wanted = bound.size == 0 ? "no index: there is nothing in " + bound.of
                                 : fmt::format("from 0 to {}: {}", bound.size - 1, bound.of),
       .cure =
           fmt::format("correct the index, or call set_index_checks(false) to allow it: it then {}",
                       bound.otherwise)});
}

}  // namespace

UncheckedIndices::UncheckedIndices() { num_unchecked() += 1; }
UncheckedIndices::~UncheckedIndices() { num_unchecked() -= 1; }

void check_indices(const Array& indices, const IndexBound& bound) {
  if (num_unchecked() > 0 || !current_settings().checks_indices) return;
  const Span where = call_span();
  if (indices.is_concrete()) {
    return check_values(gather(tiles_of(indices, where), bound.op, where), bound, where);
  }
  call_when_run(
      [bound, where](const std::vector<ops::HostArray>& values) {
        check_values(values[0], bound, where);
      },
      {indices}, std::source_location());
}

}  // namespace tessera::detail
