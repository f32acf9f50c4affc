#include "compile/host/exchange.h"

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

/// The bytes that are sent.
std::span<std::byte> bytes_of(const ExchangeRound& round, const ExchangeMessage& message,
                              Buffers buffers) {
  std::byte* begin = message.scratch >= 0 ? buffers.back() + message.scratch
                                          : first_element(round, message.piece, buffers);
  const std::int64_t bytes = num_elements(message.piece.extents) * element_bytes(round);
  return {begin, static_cast<std::size_t>(bytes)};
}

/// Assigns scratch to pieces that are not dense in a buffer. Returns the end of the scratch.
std::int64_t place_in_scratch(ExchangeRound& round) {
  std::int64_t end = 0;
  const auto place = [&](ExchangeMessage& message) {
    if (!message.is_kept && is_dense(message.piece)) return;
    message.scratch = end;
    const std::int64_t bytes = num_elements(message.piece.extents) * element_bytes(round);
    end += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  };
  for (ExchangeMessage& message : round.sends) place(message);
  for (ExchangeMessage& message : round.receives) place(message);
  return end;
}

std::optional<kernels::CombinePlan> plan_of(const ExchangeRound& round) {
  if (!round.combine) return std::nullopt;
  const ExchangeCombine& combine = *round.combine;
  kernels::CombineProblem problem{
      .kind = combine.kind, .dtype = round.dtype, .extents = combine.result.extents, .sources = {}};
  for (const ExchangeCombine::Source& source : combine.sources) {
    if (source.receive) {
      problem.sources.push_back({.offset = 0, .strides = row_major_strides(problem.extents)});
    } else {
      problem.sources.push_back({.offset = source.piece.offset, .strides = source.piece.strides});
    }
  }
  return kernels::CombinePlan(std::move(problem), 1);
}

void pack(const ExchangeRound& round, Buffers buffers) {
  for (const ExchangeMessage& send : round.sends) {
    if (send.scratch < 0) continue;
    kernels::copy_box(first_element(round, send.piece, buffers), send.piece.strides,
                      buffers.back() + send.scratch, row_major_strides(send.piece.extents),
                      send.piece.extents, size_bytes(round.dtype));
  }
}

void unpack(const ExchangeRound& round, Buffers buffers) {
  for (const ExchangeMessage& receive : round.receives) {
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

void combine(const ExchangeRound& round, const kernels::CombinePlan& plan, Buffers buffers) {
  std::vector<std::byte*> sources;
  for (const ExchangeCombine::Source& source : round.combine->sources) {
    sources.push_back(source.receive ? buffers.back() + round.receives[*source.receive].scratch
                                     : buffers[source.piece.buffer]);
  }
  std::byte* result = first_element(round, round.combine->result, buffers);
  for (int part = 0; part < plan.num_parts(); ++part) plan.run(sources, result, part);
}

}  // namespace

ExchangeKernel::ExchangeKernel(std::vector<ExchangeRound> rounds, run::CollectiveLabel label,
                               run::Transport& transport)
    : rounds_(std::move(rounds)), label_(std::move(label)), transport_(transport) {
  for (ExchangeRound& round : rounds_) {
    require(!round.combine || is_dense(round.combine->result), "results of a round are dense");
    scratch_bytes_ = std::max(scratch_bytes_, place_in_scratch(round));
    plans_.push_back(plan_of(round));
  }
}

void ExchangeKernel::run(std::span<std::byte* const> buffers, int /*part*/) const {
  transport_.begin(label_);
  for (std::size_t i = 0; i < rounds_.size(); ++i) {
    const ExchangeRound& round = rounds_[i];
    pack(round, buffers);
    std::vector<run::Transport::Send> sends;
    for (const ExchangeMessage& send : round.sends) {
      sends.push_back({send.peer, bytes_of(round, send, buffers)});
    }
    std::vector<run::Transport::Receive> receives;
    for (const ExchangeMessage& receive : round.receives) {
      receives.push_back({receive.peer, bytes_of(round, receive, buffers)});
    }
    transport_.exchange(sends, receives);
    unpack(round, buffers);
    copy(round, buffers);
    if (plans_[i]) combine(round, *plans_[i], buffers);
  }
}

}  // namespace tessera::compile::host
