// How processes that compute one device each exchange bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <tessera/types.h>

namespace tessera::run {

/// Describes a collective in error messages. All processes that take part pass the same kind and
/// span, which are sent with each message: messages of a process that has diverged are not
/// accepted.
struct CollectiveLabel {
  std::string kind;  // all_reduce, ...
  std::string op;    // the op that needs it
  Span span;         // of that op
};

/// Connects this process to all others; there are `size()` in total. Processes that exchange begin
/// the same collectives in the same order, and only one thread at a time may use a transport. If a
/// process fails, stops or diverges, exchange() throws RuntimeFault in all others, which names its
/// rank and the collective. A process that is merely slow is waited for.
class Transport {
 public:
  struct Send {
    int to;
    std::span<const std::byte> bytes;
  };
  struct Receive {
    int from;
    std::span<std::byte> bytes;
  };

  Transport() = default;
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Begins the next collective, to which the following exchanges belong. `label` must live until
  /// they end.
  virtual void begin(const CollectiveLabel& label) = 0;
  /// Runs all sends and receives concurrently and returns when all are complete. Messages between
  /// two processes keep their order. The size of a receive must be that of the matching send. A
  /// process must not send to itself.
  virtual void exchange(std::span<const Send> sends, std::span<const Receive> receives) = 0;
  /// Tells all others that this process has failed. After that exchange() always throws.
  virtual void give_up(std::string_view why) noexcept = 0;
  /// Bytes that this process has received.
  virtual std::int64_t received_bytes() const = 0;
  /// The size in bytes into which large data should be cut, so that sending and combining overlap.
  /// The same in all processes.
  virtual std::int64_t message_bytes() const = 0;
};

/// `rank 3`; with several groups, `rank 3 (group 1, process 1)`.
std::string rank_name(int rank, int num_processes, int processes_per_group);

}  // namespace tessera::run
