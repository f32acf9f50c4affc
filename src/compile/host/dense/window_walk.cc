#include "compile/host/dense/window_walk.h"

#include <algorithm>
#include <map>

namespace tessera::compile::host {

namespace {

/// Whether each result belongs to just the element with the same index.
bool is_plain(const SpaceDim& dim) {
  return dim.size == 1 && dim.stride == 1 && dim.spread == 1 && dim.low == 0 &&
         dim.rows == dim.windows;
}

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

WindowWalk::WindowWalk(std::vector<SpaceDim> dims, bool has_gaps) {
  while (!dims.empty() && is_plain(dims.back())) {
    columns_ *= dims.back().windows;
    dims.pop_back();
  }
  if (dims.empty()) dims.emplace_back();
  for (const SpaceDim& dim : dims) add_dim(dim, has_gaps);
  std::int64_t from = columns_, to = columns_;
  for (auto dim = dims_.rbegin(); dim != dims_.rend(); ++dim) {
    dim->from = from;
    dim->to = to;
    from *= dim->space.rows;
    to *= dim->space.windows;
  }
  add_runs(classes_of(dims.back()));
  for (std::size_t i = 0; i + 1 < dims_.size(); ++i) pieces_ *= dims_[i].space.windows;
  if (dims_.size() == 1) pieces_ = dims_[0].space.windows;
}

void WindowWalk::add_dim(const SpaceDim& space, bool has_gaps) {
  Dim dim{.space = space, .classes = {}, .kinds = {}, .rows = {}};
  dim.kinds.resize(at(space.windows));
  dim.rows.resize(at(space.windows));
  for (const WindowClass& same : classes_of(space)) {
    Class kind{.meets = {}, .steps = same.steps};
    for (std::int64_t q = 0; q < space.size; ++q) {
      const std::int64_t place = same.windows[0] * space.stride + q * space.dilation - space.low;
      const bool is_gap = place % space.spread != 0 && !has_gaps;
      const bool has_row = space.row(same.windows[0], q).has_value();
      kind.meets.push_back(has_row ? Meets::row : is_gap ? Meets::gap : Meets::nothing);
    }
    for (std::size_t i = 0; i < same.windows.size(); ++i) {
      dim.kinds[at(same.windows[i])] = dim.classes.size();
      dim.rows[at(same.windows[i])] = same.rows[i];
    }
    dim.classes.push_back(std::move(kind));
  }
  dims_.push_back(std::move(dim));
}

void WindowWalk::add_runs(const std::vector<WindowClass>& classes) {
  for (std::size_t kind = 0; kind < classes.size(); ++kind) {
    const auto& [windows, rows, elements, steps] = classes[kind];
    for (std::size_t i = 0; i < windows.size();) {
      Run run{.kind = kind, .window = windows[i], .row = rows[i], .count = 1};
      const std::size_t first = i++;
      if (i < windows.size()) {
        run.window_step = windows[i] - windows[first];
        run.row_step = rows[i] - rows[first];
      }
      while (i < windows.size() && windows[i] - windows[i - 1] == run.window_step &&
             rows[i] - rows[i - 1] == run.row_step) {
        ++run.count;
        ++i;
      }
      runs_.push_back(run);
    }
  }
}

std::int64_t WindowWalk::terms_each() const {
  std::int64_t terms = columns_;
  for (const Dim& dim : dims_) terms *= dim.space.size;
  return dims_.size() == 1 ? terms : terms * dims_.back().space.windows;
}

/// Elements are numbered in row-major order of the window.
WindowWalk::Terms WindowWalk::terms_of(const std::vector<std::size_t>& kinds) const {
  struct Part {
    std::int64_t offset;
    std::int32_t number;
    Meets meets;
  };
  std::vector<Part> parts = {{0, 0, Meets::row}};
  for (std::size_t d = 0; d < dims_.size(); ++d) {
    const Class& kind = dims_[d].classes[kinds[d]];
    const auto size = static_cast<std::int32_t>(dims_[d].space.size);
    std::vector<Part> next;
    for (const Part& part : parts) {
      std::size_t row = 0;
      for (std::int32_t q = 0; q < size; ++q) {
        const Meets meets = kind.meets[static_cast<std::size_t>(q)];
        const std::int64_t step = meets == Meets::row ? kind.steps[row++] : 0;
        next.push_back({part.offset + step * dims_[d].from, part.number * size + q,
                        std::max(part.meets, meets)});
      }
    }
    parts = std::move(next);
  }
  Terms terms;
  for (const Part& part : parts) {
    if (part.meets == Meets::row) {
      terms.offsets.push_back(part.offset);
      terms.numbers.push_back(part.number);
    }
    if (part.meets == Meets::nothing && terms.missing < 0) terms.missing = part.number;
  }
  return terms;
}

void WindowWalk::visit_line(const std::vector<Terms>& terms, std::int64_t from, std::int64_t to,
                            std::int64_t first, std::int64_t end, const Visit& visit) const {
  const Dim& dim = dims_.back();
  for (const Run& run : runs_) {
    const std::int64_t step = run.window_step;
    const auto before = [&](std::int64_t window) {
      return std::clamp<std::int64_t>((window - run.window + step - 1) / step, 0, run.count);
    };
    const std::int64_t skipped = before(first), count = before(end) - skipped;
    if (count <= 0) continue;
    const Terms& of_run = terms[run.kind];
    const kernels::WindowRows rows = {.offsets = of_run.offsets,
                                      .rows = count,
                                      .stride = run.row_step * dim.from,
                                      .columns = columns_,
                                      .result_stride = step * dim.to,
                                      .missing = of_run.missing,
                                      .numbers = of_run.numbers};
    visit(rows, from + (run.row + skipped * run.row_step) * dim.from,
          to + (run.window + skipped * step) * dim.to);
  }
}

void WindowWalk::visit(std::int64_t first, std::int64_t end, const Visit& visit) const {
  const std::size_t last = dims_.size() - 1;
  std::vector<std::size_t> kinds(dims_.size());
  std::map<std::vector<std::size_t>, std::vector<Terms>> known;  // per classes of all but the last
  const bool is_line = last == 0;
  for (std::int64_t piece = is_line ? 0 : first; piece < (is_line ? 1 : end); ++piece) {
    std::int64_t from = 0, to = 0, rest = piece;
    for (std::size_t d = last; d-- > 0;) {
      const std::size_t window = at(rest % dims_[d].space.windows);
      rest /= dims_[d].space.windows;
      kinds[d] = dims_[d].kinds[window];
      from += dims_[d].rows[window] * dims_[d].from;
      to += static_cast<std::int64_t>(window) * dims_[d].to;
    }
    kinds[last] = 0;
    std::vector<Terms>& terms = known[kinds];
    for (std::size_t kind = terms.size(); kind < dims_[last].classes.size(); ++kind) {
      kinds[last] = kind;
      terms.push_back(terms_of(kinds));
    }
    visit_line(terms, from, to, is_line ? first : 0, is_line ? end : dims_[last].space.windows,
               visit);
  }
}

}  // namespace tessera::compile::host
