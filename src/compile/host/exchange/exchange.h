// The kernel of a collective between processes: it packs, exchanges, unpacks and combines, in
// rounds.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <tessera/types.h>

#include "compile/host/kernels/boxes.h"
#include "compile/host/program.h"
#include "run/executable.h"
#include "run/transport/transport.h"

namespace tessera::compile::host {

/// A box of elements in one of the task's buffers.
struct ExchangePiece {
  std::uint32_t buffer = 0;
  std::int64_t offset = 0;  // in elements
  std::vector<std::int64_t> strides = {};
  Shape extents = {};
};

/// What is sent in one message: a piece, or the reduction of several pieces of the same size.
struct ExchangeSend {
  int peer = 0;
  std::vector<ExchangePiece> pieces;  // in the order of the tree
  std::int64_t scratch = -1;  // bytes from the start of the scratch; -1: dense in its buffer
};

struct ExchangeReceive {
  int peer = 0;
  ExchangePiece piece;
  bool is_kept = false;       // only combined in this round, not written to a buffer
  std::int64_t scratch = -1;  // as in ExchangeSend
};

/// The elementwise reduction of pieces of the same size.
struct ExchangeCombine {
  struct Source {
    std::optional<std::size_t> receive;  // a message that the round keeps, or
    ExchangePiece piece;                 // a piece of this process
    std::int64_t num_leaves = 1;         // as in CombineProblem
  };
  std::vector<Source> sources;  // in the order of the tree
  ExchangePiece result;         // dense
};

struct ExchangeCopy {
  ExchangePiece from, to;
};

/// Messages that are exchanged all at once, and what is then done with their contents.
struct ExchangeRound {
  DType dtype = DType::f32;
  kernels::ReduceKind kind = kernels::ReduceKind::sum;
  std::vector<ExchangeSend> sends = {};
  std::vector<ExchangeReceive> receives = {};
  std::vector<ExchangeCopy> copies = {};  // within this process
  std::vector<ExchangeCombine> combines = {};
};

/// Cuts `extents` into boxes of at most `most` elements, in row-major order. Each box is a
/// contiguous range of the elements in row-major order.
struct SubBox {
  std::vector<std::int64_t> start;
  Shape size;
};
std::vector<SubBox> split_box(const Shape& extents, std::int64_t most);

class ExchangeKernel final : public run::Kernel {
 public:
  ExchangeKernel(std::vector<ExchangeRound> rounds, run::CollectiveLabel label,
                 run::Transport& transport);
  /// The size of the last buffer, in which pieces are packed.
  std::int64_t packing_bytes() const { return packing_bytes_; }
  void run(std::span<std::byte* const> buffers, int part) const override;

 private:
  struct Plans {
    std::vector<std::optional<kernels::CombinePlan>> sends;  // of several pieces
    std::vector<kernels::CombinePlan> combines;
  };

  std::vector<ExchangeRound> rounds_;
  std::vector<Plans> plans_;  // per round
  run::CollectiveLabel label_;
  run::Transport& transport_;
  std::int64_t packing_bytes_ = 0;
};

/// Makes `kernel` the kernel of a task whose buffers are already set.
void set_kernel(TileTask& task, std::shared_ptr<const ExchangeKernel> kernel);

}  // namespace tessera::compile::host
