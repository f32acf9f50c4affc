// Moves bytes between the processes of a run.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace tessera::run {

/// What connects this process to the others: sockets or MPI. It knows nothing of collectives or of
/// faults. Calls may come from any thread, but only from one at a time.
class Link {
 public:
  /// A small message that never waits behind data.
  struct Note {
    int peer = 0;  // who sent it
    std::array<std::byte, 512> bytes;
  };

  Link() = default;
  virtual ~Link() = default;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// The size in bytes into which large data should be cut, so that sending and combining overlap.
  virtual std::int64_t message_bytes() const = 0;

  /// Messages between two processes keep their order, and a receive has the size of the matching
  /// send. The bytes must live until the message is done.
  virtual void post_send(int to, std::span<const std::byte> bytes) = 0;
  virtual void post_receive(int from, std::span<std::byte> bytes) = 0;
  /// The messages to or from `peer` that are not done.
  virtual std::int64_t num_pending(int peer) const = 0;
  /// Moves what can be moved now. If nothing can, waits for at most `wait`. Returns whether a
  /// message or a part of one was moved, notes included.
  virtual bool progress(std::chrono::nanoseconds wait) = 0;

  virtual void post_note(int to, std::span<const std::byte> bytes) = 0;
  /// The next note that has arrived.
  virtual std::optional<Note> take_note() = 0;
  /// Whether the process is known to have ended. A link that cannot tell returns false.
  virtual bool has_ended(int peer) const = 0;
};

}  // namespace tessera::run
