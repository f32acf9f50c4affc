// Messages travel over a stream socket per pair of processes. Data that comes before its receive is
// posted stays in the socket, so that nothing is copied twice. Notes must not wait for it, so each
// process has a mailbox: a pair of sockets that preserve the boundaries of notes. The process reads
// one, and all others share the other.
#include "run/transport/socket_link.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include <tessera/error.h>

namespace tessera::run {

namespace {

using std::chrono::milliseconds;

struct FrameHeader {
  Link::Envelope envelope;
  std::uint64_t bytes = 0;
};

struct Outgoing {
  FrameHeader header;
  std::span<const std::byte> bytes;
  std::size_t done = 0;  // header included
};

struct Incoming {
  FrameHeader wanted;
  std::span<std::byte> bytes;
};

struct Peer {
  int socket = -1;   // -1: closed
  int mailbox = -1;  // takes the notes for this process
  bool has_ended = false;
  bool is_deaf = false;  // does not receive any more
  std::deque<Outgoing> out;
  std::deque<Incoming> in;
  std::deque<std::string> notes;  // not sent yet: its mailbox is full
  FrameHeader header;             // of the message that is being read
  std::size_t done = 0;           // bytes of that message, header included

  bool takes() const { return !out.empty() && !is_deaf && socket >= 0; }
};

void close_file(int& file) {
  if (file >= 0) close(file);
  file = -1;
}

class SocketLink final : public Link {
 public:
  SocketLink(int rank, SocketFiles files)
      : rank_(rank), mailbox_(files.mailbox), peers_(files.sockets.size()) {
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      peers_[i].socket = files.sockets[i];
      peers_[i].mailbox = files.mailboxes[i];
    }
    polls_.reserve(peers_.size() + 1);
  }
  ~SocketLink() override {
    close_file(mailbox_);
    for (Peer& peer : peers_) {
      close_file(peer.socket);
      close_file(peer.mailbox);
    }
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }
  std::int64_t message_bytes() const override { return std::int64_t{64} * 1024; }
  std::int64_t received_bytes() const override { return received_bytes_; }

  void post_send(int to, const Envelope& envelope, std::span<const std::byte> bytes) override;
  void post_receive(int from, const Envelope& envelope, std::span<std::byte> bytes) override;
  bool is_pending(int peer) const override {
    const Peer& other = peers_[static_cast<std::size_t>(peer)];
    return !other.in.empty() || !other.out.empty();
  }
  bool progress(std::chrono::nanoseconds wait) override;
  std::optional<Mismatch> mismatch() const override { return mismatch_; }
  void drop_messages() noexcept override;

  void post_note(int to, std::string_view bytes, bool is_important) override;
  std::optional<Note> take_note() override;
  bool has_ended(int peer) override {
    const Peer& other = peers_[static_cast<std::size_t>(peer)];
    // What a process sent before it ended is still read.
    return other.has_ended || (other.is_deaf && other.in.empty());
  }

 private:
  bool write(Peer& to);
  bool read(Peer& from);
  void check_header(Peer& from);
  void write_notes(Peer& to);
  void read_mailbox();
  bool poll_files(milliseconds wait);

  int rank_;
  int mailbox_;
  std::vector<Peer> peers_;
  std::vector<pollfd> polls_;
  std::deque<Note> notes_;
  std::optional<Mismatch> mismatch_;
  std::int64_t received_bytes_ = 0;
  bool has_dropped_ = false;
};

void SocketLink::post_send(int to, const Envelope& envelope, std::span<const std::byte> bytes) {
  require(!has_dropped_, "no message is posted after messages were dropped");
  Peer& peer = peers_[static_cast<std::size_t>(to)];
  peer.out.push_back({.header = {.envelope = envelope, .bytes = bytes.size()}, .bytes = bytes});
}

void SocketLink::post_receive(int from, const Envelope& envelope, std::span<std::byte> bytes) {
  require(!has_dropped_, "no message is posted after messages were dropped");
  Peer& peer = peers_[static_cast<std::size_t>(from)];
  peer.in.push_back({.wanted = {.envelope = envelope, .bytes = bytes.size()}, .bytes = bytes});
}

bool SocketLink::progress(std::chrono::nanoseconds wait) {
  bool has_moved = false;
  for (Peer& peer : peers_) {
    if (peer.takes()) has_moved = write(peer) || has_moved;
    if (!peer.notes.empty()) write_notes(peer);
  }
  // Rounded up, so that a wait that is not zero does not become a busy loop.
  const auto whole = std::chrono::ceil<milliseconds>(wait);
  return poll_files(has_moved ? milliseconds(0) : whole) || has_moved;
}

/// Waits until a file is ready, and reads and writes what it can. Returns whether data was moved.
bool SocketLink::poll_files(milliseconds wait) {
  polls_.clear();
  for (const Peer& peer : peers_) {
    const bool is_idle = peer.has_ended || (peer.in.empty() && !peer.takes());
    short events = peer.in.empty() ? short{0} : short{POLLIN};
    if (peer.takes()) events |= POLLOUT;
    polls_.push_back({.fd = is_idle ? -1 : peer.socket, .events = events, .revents = 0});
  }
  polls_.push_back({.fd = mailbox_, .events = POLLIN, .revents = 0});
  if (poll(polls_.data(), polls_.size(), static_cast<int>(wait.count())) < 0) {
    if (errno == EINTR) return false;
    throw RuntimeFault(fmt::format("poll: {}", std::strerror(errno)));
  }
  if (polls_.back().revents != 0) read_mailbox();
  bool has_moved = false;
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    const short events = polls_[i].revents;
    if (events == 0) continue;
    if (peers_[i].takes()) has_moved = write(peers_[i]) || has_moved;
    if ((events & ~POLLOUT) != 0) has_moved = read(peers_[i]) || has_moved;
  }
  return has_moved;
}

bool SocketLink::write(Peer& to) {
  bool has_moved = false;
  while (!to.out.empty()) {
    Outgoing& frame = to.out.front();
    const auto header = std::as_bytes(std::span(&frame.header, 1));
    const std::size_t in_header = std::min(frame.done, header.size());
    const std::size_t in_payload = frame.done - in_header;
    iovec parts[2];
    parts[0].iov_base = const_cast<std::byte*>(header.data()) + in_header;
    parts[0].iov_len = header.size() - in_header;
    parts[1].iov_base = const_cast<std::byte*>(frame.bytes.data()) + in_payload;
    parts[1].iov_len = frame.bytes.size() - in_payload;
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    const ssize_t count = sendmsg(to.socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      // The process may have ended, but what it sent before that can still be read.
      if (errno != EAGAIN && errno != EWOULDBLOCK) to.is_deaf = true;
      return has_moved;
    }
    has_moved = true;
    frame.done += static_cast<std::size_t>(count);
    if (frame.done == header.size() + frame.bytes.size()) to.out.pop_front();
  }
  return has_moved;
}

void SocketLink::check_header(Peer& from) {
  const FrameHeader& wanted = from.in.front().wanted;
  if (from.header.envelope == wanted.envelope && from.header.bytes == wanted.bytes) return;
  if (mismatch_) return;
  mismatch_ = Mismatch{.peer = static_cast<int>(&from - peers_.data()),
                       .found = from.header.envelope,
                       .wanted = wanted.envelope,
                       .found_bytes = static_cast<std::int64_t>(from.header.bytes),
                       .wanted_bytes = static_cast<std::int64_t>(wanted.bytes)};
}

/// Reads header and payload at once. If the header is not the expected one, the payload is lost,
/// and nothing more is read.
bool SocketLink::read(Peer& from) {
  bool has_moved = false;
  while (!from.in.empty() && !mismatch_) {
    const std::span<std::byte> payload = from.in.front().bytes;
    const std::size_t in_header = std::min(from.done, sizeof(FrameHeader));
    const std::size_t in_payload = from.done - in_header;
    iovec parts[2];
    parts[0].iov_base = reinterpret_cast<std::byte*>(&from.header) + in_header;
    parts[0].iov_len = sizeof(FrameHeader) - in_header;
    parts[1].iov_base = payload.data() + in_payload;
    parts[1].iov_len = payload.size() - in_payload;
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    const ssize_t count = recvmsg(from.socket, &message, MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return has_moved;
    if (count <= 0) {
      from.has_ended = true;
      return has_moved;
    }
    has_moved = true;
    from.done += static_cast<std::size_t>(count);
    if (from.done < sizeof(FrameHeader)) continue;
    if (in_header < sizeof(FrameHeader)) check_header(from);
    if (mismatch_ || from.done < sizeof(FrameHeader) + payload.size()) continue;
    received_bytes_ += std::ssize(payload);
    from.done = 0;
    from.in.pop_front();
  }
  return has_moved;
}

void SocketLink::drop_messages() noexcept {
  has_dropped_ = true;
  for (Peer& peer : peers_) {
    peer.in.clear();
    peer.out.clear();
    close_file(peer.socket);
  }
}

void SocketLink::post_note(int to, std::string_view bytes, bool is_important) {
  require(bytes.size() <= kMostNoteBytes, "a note is short");
  Peer& peer = peers_[static_cast<std::size_t>(to)];
  if (peer.mailbox < 0 || (!is_important && !peer.notes.empty())) return;
  std::string& note = peer.notes.emplace_back(reinterpret_cast<const char*>(&rank_), sizeof(rank_));
  note += bytes;
  write_notes(peer);
}

/// A full mailbox belongs to a process that does not read: try again later.
void SocketLink::write_notes(Peer& to) {
  while (!to.notes.empty()) {
    const std::string& note = to.notes.front();
    const ssize_t count = send(to.mailbox, note.data(), note.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (count < 0) {
      to.notes.clear();
      close_file(to.mailbox);
      return;
    }
    to.notes.pop_front();
  }
}

void SocketLink::read_mailbox() {
  while (mailbox_ >= 0) {
    char buffer[sizeof(rank_) + kMostNoteBytes];
    const ssize_t count = recv(mailbox_, buffer, sizeof(buffer), MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return;
    if (count == 0) return close_file(mailbox_);  // all others have ended
    Note note;
    std::memcpy(&note.peer, buffer, sizeof(note.peer));
    note.bytes.assign(buffer + sizeof(note.peer),
                      static_cast<std::size_t>(count) - sizeof(note.peer));
    notes_.push_back(std::move(note));
  }
}

std::optional<Link::Note> SocketLink::take_note() {
  if (notes_.empty()) read_mailbox();
  if (notes_.empty()) return std::nullopt;
  Note note = std::move(notes_.front());
  notes_.pop_front();
  return note;
}

}  // namespace

std::unique_ptr<Link> make_socket_link(int rank, SocketFiles files) {
  return std::make_unique<SocketLink>(rank, std::move(files));
}

}  // namespace tessera::run
