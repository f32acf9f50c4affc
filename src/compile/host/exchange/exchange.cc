#include "compile/host/exchange/exchange.h"

#include <algorithm>

#include <tessera/error.h>

namespace tessera::compile::host {

namespace {

constexpr std::int64_t kAlignment = 64;

bool is_dense(const ExchangePiece& piece) {
  std::int64_t expected = 1;
  for (std::size_t d = piece.extents.size(); d-- > 0;) {
    if (piece.extents[d] != 1 && piece.strides[d] != expected) return false;
    expected *= piece.extents[d];
  }
  return true;
}

}  // namespace

std::vector<SubBox> split_box(const Shape& extents, std::int64_t most) {
  if (num_elements(extents) == 0) return {};
  // Whole rows of dimension `cut`; for dimensions before it, one index at a time.
  std::size_t cut = extents.size();
  std::int64_t row = 1;
  while (cut > 0 && row * extents[cut - 1] <= most) row *= extents[--cut];
  if (cut == 0) return {{.start = std::vector<std::int64_t>(extents.size(), 0), .size = extents}};
  --cut;
  const std::int64_t rows = std::max<std::int64_t>(most / row, 1);
  std::vector<SubBox> boxes;
  std::vector<std::int64_t> index(extents.size(), 0);
  while (true) {
    Shape size = extents;
    std::fill(size.begin(), size.begin() + static_cast<std::ptrdiff_t>(cut), 1);
    size[cut] = std::min(rows, extents[cut] - index[cut]);
    boxes.push_back({.start = index, .size = std::move(size)});
    index[cut] += rows;
    std::size_t d = cut;
    while (index[d] >= extents[d]) {
      index[d] = 0;
      if (d == 0) return boxes;
      ++index[--d];
    }
  }
}

namespace {

using Buffers = std::span<std::byte* const>;

std::int64_t element_bytes(const ExchangeRound& round) {
  return static_cast<std::int64_t>(size_bytes(round.dtype));
}

std::byte* first_element(const ExchangeRound& round, const ExchangePiece& piece, Buffers buffers) {
  return buffers[piece.buffer] + piece.offset * element_bytes(round);
}

std::int64_t bytes_of(const ExchangeRound& round, const ExchangePiece& piece) {
  return num_elements(piece.extents) * element_bytes(round);
}

/// The bytes of a message that holds this piece.
std::span<std::byte> bytes_of(const ExchangeRound& round, const ExchangePiece& piece,
                              std::int64_t scratch, Buffers buffers) {
  std::byte* begin = scratch >= 0 ? buffers.back() + scratch : first_element(round, piece, buffers);
  return {begin, static_cast<std::size_t>(bytes_of(round, piece))};
}

/// Assigns scratch to messages that are not dense in a buffer. Returns the end of the scratch.
std::int64_t place_in_scratch(ExchangeRound& round) {
  std::int64_t end = 0;
  const auto place = [&](const ExchangePiece& piece) {
    const std::int64_t start = end;
    end += (bytes_of(round, piece) + kAlignment - 1) / kAlignment * kAlignment;
    return start;
  };
  for (ExchangeSend& send : round.sends) {
    const bool is_made = send.pieces.size() > 1 || !is_dense(send.pieces[0]);
    if (is_made) send.scratch = place(send.pieces[0]);
  }
  for (ExchangeReceive& receive : round.receives) {
    if (receive.is_kept || !is_dense(receive.piece)) receive.scratch = place(receive.piece);
  }
  return end;
}

kernels::CombineProblem problem_of(const ExchangeRound& round, const Shape& extents) {
  return {.kind = round.kind, .dtype = round.dtype, .extents = extents, .sources = {}};
}

std::optional<kernels::CombinePlan> plan_of(const ExchangeRound& round, const ExchangeSend& send) {
  if (send.pieces.size() == 1) return std::nullopt;
  kernels::CombineProblem problem = problem_of(round, send.pieces[0].extents);
  for (const ExchangePiece& piece : send.pieces) {
    problem.sources.push_back({.offset = piece.offset, .strides = piece.strides});
  }
  return kernels::CombinePlan(std::move(problem), 1);
}

kernels::CombinePlan plan_of(const ExchangeRound& round, const ExchangeCombine& combine) {
  kernels::CombineProblem problem = problem_of(round, combine.result.extents);
  for (const ExchangeCombine::Source& source : combine.sources) {
    const auto strides = source.receive ? row_major_strides(problem.extents) : source.piece.strides;
    problem.sources.push_back({.offset = source.receive ? 0 : source.piece.offset,
                               .strides = strides,
                               .num_leaves = source.num_leaves});
  }
  return kernels::CombinePlan(std::move(problem), 1);
}

void run_plan(const kernels::CombinePlan& plan, const std::vector<std::byte*>& sources,
              std::byte* result) {
  for (int part = 0; part < plan.num_parts(); ++part) plan.run(sources, result, part);
}

/// Packs, or reduces, the pieces to be sent.
void pack(const ExchangeRound& round, const std::vector<std::optional<kernels::CombinePlan>>& plans,
          Buffers buffers) {
  for (std::size_t i = 0; i < round.sends.size(); ++i) {
    const ExchangeSend& send = round.sends[i];
    if (send.scratch < 0) continue;
    std::byte* to = buffers.back() + send.scratch;
    if (plans[i]) {
      std::vector<std::byte*> sources;
      for (const ExchangePiece& piece : send.pieces) sources.push_back(buffers[piece.buffer]);
      run_plan(*plans[i], sources, to);
      continue;
    }
    const ExchangePiece& piece = send.pieces[0];
    kernels::copy_box(first_element(round, piece, buffers), piece.strides, to,
                      row_major_strides(piece.extents), piece.extents, size_bytes(round.dtype));
  }
}

void unpack(const ExchangeRound& round, Buffers buffers) {
  for (const ExchangeReceive& receive : round.receives) {
    if (receive.is_kept || receive.scratch < 0) continue;
    kernels::copy_box(buffers.back() + receive.scratch, row_major_strides(receive.piece.extents),
                      first_element(round, receive.piece, buffers), receive.piece.strides,
                      receive.piece.extents, size_bytes(round.dtype));
  }
}

void copy(const ExchangeRound& round, Buffers buffers) {
  for (const ExchangeCopy& copy : round.copies) {
    kernels::copy_box(first_element(round, copy.from, buffers), copy.from.strides,
                      first_element(round, copy.to, buffers), copy.to.strides, copy.from.extents,
                      size_bytes(round.dtype));
  }
}

void combine(const ExchangeRound& round, const ExchangeCombine& combine,
             const kernels::CombinePlan& plan, Buffers buffers) {
  std::vector<std::byte*> sources;
  for (const ExchangeCombine::Source& source : combine.sources) {
    sources.push_back(source.receive ? buffers.back() + round.receives[*source.receive].scratch
                                     : buffers[source.piece.buffer]);
  }
  run_plan(plan, sources, first_element(round, combine.result, buffers));
}

}  // namespace

ExchangeKernel::ExchangeKernel(std::vector<ExchangeRound> rounds, run::CollectiveLabel label,
                               run::Transport& transport)
    : rounds_(std::move(rounds)), label_(std::move(label)), transport_(transport) {
  for (ExchangeRound& round : rounds_) {
    packing_bytes_ = std::max(packing_bytes_, place_in_scratch(round));
    Plans& plans = plans_.emplace_back();
    for (const ExchangeSend& send : round.sends) plans.sends.push_back(plan_of(round, send));
    for (const ExchangeCombine& combine : round.combines) {
      require(is_dense(combine.result), "results of a round are dense");
      plans.combines.push_back(plan_of(round, combine));
    }
  }
}

void ExchangeKernel::run(std::span<std::byte* const> buffers, int /*part*/) const {
  transport_.begin(label_);
  for (std::size_t i = 0; i < rounds_.size(); ++i) {
    const ExchangeRound& round = rounds_[i];
    pack(round, plans_[i].sends, buffers);
    std::vector<run::Transport::Send> sends;
    for (const ExchangeSend& send : round.sends) {
      sends.push_back({send.peer, bytes_of(round, send.pieces[0], send.scratch, buffers)});
    }
    std::vector<run::Transport::Receive> receives;
    for (const ExchangeReceive& receive : round.receives) {
      receives.push_back({receive.peer, bytes_of(round, receive.piece, receive.scratch, buffers)});
    }
    transport_.exchange(sends, receives);
    unpack(round, buffers);
    copy(round, buffers);
    for (std::size_t k = 0; k < round.combines.size(); ++k) {
      combine(round, round.combines[k], plans_[i].combines[k], buffers);
    }
  }
}

void set_kernel(TileTask& task, std::shared_ptr<const ExchangeKernel> kernel) {
  if (kernel->packing_bytes() > 0) {
    task.scratch.push_back(kernel->packing_bytes());
    task.device_scratch_bytes = kernel->packing_bytes();
  }
  task.kernel = std::move(kernel);
  task.communicates = true;
}

}  // namespace tessera::compile::host
