// Frames over stream sockets: data, and two other kinds between data frames.
//
// "waits": before its timeout, a process that has received nothing tells all others for whom it
// waits. So they can distinguish a process that is stuck from one that waits for a third one.
// "end": a process that gives up tells all others why, before it closes its sockets. If a socket
// closes without this frame, its process has died.
#include "run/transport/sockets.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <tessera/error.h>

#include "run/transport/running_time.h"

namespace tessera::run {

std::string Transport::where() const {
  if (label_ == nullptr) return "the start";
  std::string text = fmt::format("{} {} ({}", label_->kind, number_, label_->op);
  if (!label_->span.file.empty()) text += " at " + to_string(label_->span);
  return text + ")";
}

std::string rank_name(int rank, int num_processes, int devices_per_group) {
  if (devices_per_group == num_processes) return fmt::format("rank {}", rank);
  return fmt::format("rank {} (group {}, device {})", rank, rank / devices_per_group,
                     rank % devices_per_group);
}

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

enum class FrameKind : std::uint32_t { data, waits, end };

struct Header {
  FrameKind kind = FrameKind::data;
  std::int32_t rank = -1;  // waits: the awaited rank; end: the rank that failed
  std::uint64_t bytes = 0;
};

/// A frame that is being sent. `owned` holds the payload of frames other than data.
struct Outgoing {
  Header header;
  std::span<const std::byte> bytes = {};
  std::string owned = {};
  std::size_t done = 0;  // header included
};

struct Peer {
  int socket = -1;  // -1: closed
  bool has_ended = false;
  bool is_deaf = false;  // does not receive any more
  std::deque<Outgoing> out;
  std::deque<std::span<std::byte>> in;  // where to put the data that is expected
  // The frame that is being read.
  Header header;
  std::size_t header_done = 0;
  std::size_t payload_done = 0;
  std::string text;
  // What it has told this process.
  int waits_for = -1;
  int ended_by = -1;  // rank that failed
  std::string end_text;

  bool is_awaited() const {
    return !in.empty() || std::any_of(out.begin(), out.end(), [](const Outgoing& frame) {
      return frame.header.kind == FrameKind::data;
    });
  }
  /// Whether data came before a receive was posted for it. It stays in the socket until then.
  bool is_early() const {
    return header_done == sizeof(Header) && header.kind == FrameKind::data && in.empty();
  }
};

class SocketTransport final : public Transport {
 public:
  explicit SocketTransport(SocketOptions options)
      : rank_(options.rank),
        devices_per_group_(options.devices_per_group),
        timeout_(options.timeout),
        peers_(options.sockets.size()) {
    for (std::size_t i = 0; i < peers_.size(); ++i) peers_[i].socket = options.sockets[i];
  }
  ~SocketTransport() override { close_all(); }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }
  std::int64_t received_bytes() const override { return received_bytes_; }
  void exchange(std::span<const Send> sends, std::span<const Receive> receives) override;
  void give_up(std::string_view why) noexcept override;

 private:
  std::string name(int rank) const { return rank_name(rank, size(), devices_per_group_); }
  Peer& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  int first_awaited() const;
  bool move_bytes(milliseconds wait);
  bool write(Peer& to);
  bool read(Peer& from);
  std::span<std::byte> payload_of(Peer& from);
  void finish_frame(Peer& from);
  void check_peers();
  void say_waiting();
  [[noreturn]] void fail_for_silence();
  [[noreturn]] void fail(int culprit, const std::string& what, const std::string& how);
  void send_end(int culprit, const std::string& text) noexcept;
  void say_end(int culprit, const std::string& text);
  void close_all();

  int rank_;
  int devices_per_group_;
  milliseconds timeout_;
  std::vector<Peer> peers_;
  std::int64_t received_bytes_ = 0;
  bool has_failed_ = false;
};

void SocketTransport::exchange(std::span<const Send> sends, std::span<const Receive> receives) {
  if (has_failed_) throw RuntimeFault("the processes of this run have been told to end");
  // Empty tiles are not sent. If their header came before the receive, this process would wait for
  // a payload that never comes.
  for (const Send& send : sends) {
    if (send.bytes.empty()) continue;
    peer(send.to).out.push_back({.header = {.bytes = send.bytes.size()}, .bytes = send.bytes});
  }
  for (const Receive& receive : receives) {
    if (!receive.bytes.empty()) peer(receive.from).in.push_back(receive.bytes);
  }
  // The rest of the timeout is left for telling the others.
  const milliseconds patience = timeout_ * 3 / 4;
  const milliseconds quiet = patience - std::min(patience / 4, milliseconds(200));
  // If this process is stopped meanwhile, that counts as at most 4 of these waits: about a quarter
  // of the patience.
  const milliseconds longest_wait = std::clamp(patience / 16, milliseconds(1), milliseconds(1000));
  RunningTime time(4 * longest_wait);
  std::chrono::nanoseconds waited{0};
  bool has_said_so = false;
  check_peers();
  while (first_awaited() >= 0) {
    waited += time.look();
    if (waited >= patience) fail_for_silence();
    if (waited >= quiet && !has_said_so) {
      say_waiting();
      has_said_so = true;
    }
    const auto left =
        std::chrono::duration_cast<milliseconds>((has_said_so ? patience : quiet) - waited);
    if (move_bytes(std::clamp(left, milliseconds(1), longest_wait))) {
      time.look();
      waited = std::chrono::nanoseconds(0);
      has_said_so = false;
    }
    check_peers();
  }
}

int SocketTransport::first_awaited() const {
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    if (peers_[i].is_awaited()) return static_cast<int>(i);
  }
  return -1;
}

/// Waits until a socket is ready, at most `wait`, and sends and receives what it can. True if data
/// was moved.
bool SocketTransport::move_bytes(milliseconds wait) {
  std::vector<pollfd> polls;
  for (const Peer& peer : peers_) {
    const bool takes = !peer.out.empty() && !peer.is_deaf;
    short events = peer.is_early() ? short{0} : short{POLLIN};
    if (takes) events |= POLLOUT;
    const bool is_idle = peer.has_ended || (peer.is_early() && !takes);
    polls.push_back({.fd = is_idle ? -1 : peer.socket, .events = events, .revents = 0});
  }
  if (poll(polls.data(), polls.size(), static_cast<int>(wait.count())) < 0) {
    if (errno == EINTR) return false;
    throw RuntimeFault(fmt::format("poll: {}", std::strerror(errno)));
  }
  bool has_moved = false;
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    if (polls[i].fd < 0 || polls[i].revents == 0) continue;
    if ((polls[i].revents & POLLOUT) != 0) has_moved = write(peers_[i]) || has_moved;
    if ((polls[i].revents & ~POLLOUT) != 0) has_moved = read(peers_[i]) || has_moved;
  }
  return has_moved;
}

bool SocketTransport::write(Peer& to) {
  bool has_moved = false;
  while (!to.out.empty()) {
    Outgoing& frame = to.out.front();
    const bool is_data = frame.header.kind == FrameKind::data;
    const auto bytes = is_data ? frame.bytes : std::as_bytes(std::span(frame.owned));
    const auto header = std::as_bytes(std::span(&frame.header, 1));
    const std::size_t in_header = std::min(frame.done, header.size());
    iovec parts[2];
    parts[0].iov_base = const_cast<std::byte*>(header.data()) + in_header;
    parts[0].iov_len = header.size() - in_header;
    const std::size_t in_payload = frame.done - in_header;
    parts[1].iov_base = const_cast<std::byte*>(bytes.data()) + in_payload;
    parts[1].iov_len = bytes.size() - in_payload;
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
    has_moved = has_moved || is_data;
    frame.done += static_cast<std::size_t>(count);
    if (frame.done == header.size() + bytes.size()) to.out.pop_front();
  }
  return has_moved;
}

/// The memory for the payload of the frame that is being read.
std::span<std::byte> SocketTransport::payload_of(Peer& from) {
  if (from.header.kind != FrameKind::data) {
    from.text.resize(from.header.bytes);
    return std::as_writable_bytes(std::span(from.text));
  }
  if (from.header.bytes != from.in.front().size()) {
    fail(static_cast<int>(&from - peers_.data()),
         fmt::format("sent {} bytes where {} were expected", from.header.bytes,
                     from.in.front().size()),
         "noticed it in");
  }
  return from.in.front();
}

bool SocketTransport::read(Peer& from) {
  bool has_moved = false;
  while (!from.is_early()) {
    const bool in_header = from.header_done < sizeof(Header);
    std::span<std::byte> into = std::as_writable_bytes(std::span(&from.header, 1));
    if (!in_header) into = payload_of(from);
    std::size_t& done = in_header ? from.header_done : from.payload_done;
    if (done < into.size()) {
      const ssize_t count = recv(from.socket, into.data() + done, into.size() - done, MSG_DONTWAIT);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return has_moved;
      if (count <= 0) {
        from.has_ended = true;
        return has_moved;
      }
      done += static_cast<std::size_t>(count);
      has_moved = has_moved || !in_header;
    }
    if (!in_header && done == into.size()) finish_frame(from);
  }
  return has_moved;
}

void SocketTransport::finish_frame(Peer& from) {
  switch (from.header.kind) {
    case FrameKind::data:
      received_bytes_ += static_cast<std::int64_t>(from.header.bytes);
      from.in.pop_front();
      from.waits_for = -1;
      break;
    case FrameKind::waits:
      from.waits_for = from.header.rank;
      break;
    case FrameKind::end:
      from.ended_by = from.header.rank;
      from.end_text = from.text;
      break;
  }
  from.header_done = 0;
  from.payload_done = 0;
}

/// Throws if a process has given up, or has ended although this one waits for it.
void SocketTransport::check_peers() {
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    const Peer& peer = peers_[i];
    if (peer.ended_by < 0) continue;
    fail(peer.ended_by, peer.end_text, "was told by " + name(static_cast<int>(i)) + " in");
  }
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    const Peer& peer = peers_[i];
    const bool is_gone = peer.has_ended || (peer.is_deaf && peer.is_early());
    if (!is_gone || !peer.is_awaited()) continue;
    fail(static_cast<int>(i), "has ended: its connection is closed", "waited for it in");
  }
}

void SocketTransport::say_waiting() {
  const int awaited = first_awaited();
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    if (peers_[i].socket < 0 || peers_[i].has_ended) continue;
    peers_[i].out.push_back({.header = {.kind = FrameKind::waits, .rank = awaited}});
  }
}

void SocketTransport::fail_for_silence() {
  // Follow the processes that wait for each other: blame the last one, which waits for no other.
  int culprit = first_awaited();
  for (int i = 0; i < size(); ++i) {
    const int next = peer(culprit).waits_for;
    if (next < 0 || next == rank_) break;
    culprit = next;
  }
  const std::chrono::duration<double> seconds = timeout_;
  fail(culprit, fmt::format("did not answer within the timeout of {:.4g} s", seconds.count()),
       "waited in");
}

void SocketTransport::fail(int culprit, const std::string& what, const std::string& how) {
  send_end(culprit, what);
  throw RuntimeFault(
      fmt::format("{} {}; {} {} {}", name(culprit), what, name(rank_), how, where()));
}

void SocketTransport::give_up(std::string_view why) noexcept {
  if (has_failed_) return;
  try {
    send_end(rank_, fmt::format("has failed: {}", why));
  } catch (...) {
    close_all();
  }
}

void SocketTransport::send_end(int culprit, const std::string& text) noexcept {
  if (has_failed_) return;
  has_failed_ = true;
  try {
    say_end(culprit, text);
  } catch (const std::exception&) {
    close_all();  // the others notice closed sockets even if there was no memory for a frame
    return;
  }
  close_all();
}

void SocketTransport::say_end(int culprit, const std::string& text) {
  for (Peer& peer : peers_) {
    if (peer.socket < 0 || peer.has_ended) continue;
    // A frame that is partly sent must be completed, or the receiver cannot read the next one.
    while (!peer.out.empty() && peer.out.back().done == 0) peer.out.pop_back();
    peer.out.push_back(
        {.header = {.kind = FrameKind::end, .rank = culprit, .bytes = text.size()}, .owned = text});
  }
  const Clock::time_point end = Clock::now() + timeout_ / 4;
  const auto is_left = [](const Peer& peer) {
    return !peer.out.empty() && !peer.has_ended && !peer.is_deaf;
  };
  while (std::any_of(peers_.begin(), peers_.end(), is_left) && Clock::now() < end) {
    std::vector<pollfd> polls;
    for (const Peer& peer : peers_) {
      polls.push_back({.fd = is_left(peer) ? peer.socket : -1, .events = POLLOUT, .revents = 0});
    }
    poll(polls.data(), polls.size(), 10);
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      if (polls[i].revents != 0) write(peers_[i]);
    }
  }
}

void SocketTransport::close_all() {
  for (Peer& peer : peers_) {
    if (peer.socket >= 0) close(peer.socket);
    peer.socket = -1;
    peer.has_ended = true;
  }
}

}  // namespace

std::unique_ptr<Transport> make_socket_transport(SocketOptions options) {
  return std::make_unique<SocketTransport>(std::move(options));
}

}  // namespace tessera::run
