// Moves bytes between the processes of a run.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace tessera::run {

/// What connects this process to the others: sockets or MPI. It knows nothing of collectives or of
/// faults. Calls may come from any thread, but only from one at a time.
class Link {
 public:
  /// Is sent before the bytes of a message. The receiver knows what it must be.
  struct Envelope {
    std::uint64_t number = 0;
    std::uint64_t hash = 0;
    bool operator==(const Envelope&) const = default;
  };
  /// A message whose envelope or size differs from those for which its receive was posted.
  struct Mismatch {
    int peer = 0;
    Envelope found, wanted;
    std::int64_t found_bytes = 0;
    std::int64_t wanted_bytes = 0;
  };
  /// A small message that never waits for data to be sent first.
  struct Note {
    int peer = 0;  // who sent it
    std::string bytes;
  };
  static constexpr std::size_t kMostNoteBytes = 512;

  Link() = default;
  virtual ~Link() = default;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// The size in bytes into which large data should be cut, so that sending and combining overlap.
  virtual std::int64_t message_bytes() const = 0;
  /// Bytes of messages that this process has received, without envelopes and notes.
  virtual std::int64_t received_bytes() const = 0;

  /// Messages between two processes keep their order. The bytes must live until the message is
  /// done, or until drop_messages().
  virtual void post_send(int to, const Envelope& envelope, std::span<const std::byte> bytes) = 0;
  virtual void post_receive(int from, const Envelope& envelope, std::span<std::byte> bytes) = 0;
  /// Whether messages to or from `peer` are not done.
  virtual bool is_pending(int peer) const = 0;
  /// Moves what can be moved now. If nothing can be moved, waits for at most `wait`, or until a
  /// note comes or a process ends. Returns whether a message or a part of one was moved.
  virtual bool progress(std::chrono::nanoseconds wait) = 0;
  /// The first message that its receive did not expect. Its sender sends nothing more.
  virtual std::optional<Mismatch> mismatch() const = 0;
  /// Forgets all messages: their bytes need not live any longer, and no others can be posted.
  virtual void drop_messages() noexcept = 0;

  /// Sends a note of at most kMostNoteBytes. Without `is_important` it is dropped if the last one
  /// to this process is still on its way.
  virtual void post_note(int to, std::string_view bytes, bool is_important) = 0;
  /// The next note that has arrived.
  virtual std::optional<Note> take_note() = 0;
  /// Whether the process is known to have ended. A link that cannot tell returns false.
  virtual bool has_ended(int peer) = 0;
};

}  // namespace tessera::run
