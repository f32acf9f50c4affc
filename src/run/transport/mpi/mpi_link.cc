// A message begins with a head: an envelope that is followed by the bytes of short messages. The
// bytes of a longer message follow in a second one, which is received only if the head is the
// expected one. So data of a diverged process is never written to memory of another size or
// purpose.
#include "run/transport/mpi/mpi_link.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include <tessera/error.h>

#include "run/machine/clock.h"
#include "run/machine/cores.h"
#include "run/machine/memory.h"
#include "run/transport/notes.h"

namespace tessera::run {

namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

constexpr std::size_t kHeadBytes = 4096;
constexpr std::int64_t kMostPiece = std::int64_t{1} << 30;  // MPI counts bytes with an int

struct MessageHeader {
  Link::Envelope envelope;
  std::uint64_t bytes = 0;
};
constexpr std::size_t kMostInline = kHeadBytes - sizeof(MessageHeader);

using Head = std::array<std::byte, kHeadBytes>;

/// The requests of one message; the first ones are done.
struct Requests {
  std::vector<TesseraMpiRequest> all;
  std::size_t num_done = 0;

  bool are_done() const { return num_done == all.size(); }
};

struct MpiOutgoing {
  std::unique_ptr<Head> head;
  TesseraMpiRequest head_request;
  bool is_head_done = false;
  Requests pieces;  // of its bytes
};

struct MpiIncoming {
  MessageHeader wanted;
  std::span<std::byte> bytes;
  Requests pieces;        // of its bytes, being received
  bool is_begun = false;  // its head has come
};

struct OutgoingNote {
  std::string bytes;
  TesseraMpiRequest request;
};

struct MpiPeer {
  std::deque<MpiOutgoing> out;
  std::deque<MpiIncoming> in;
  std::unique_ptr<Head> head;  // of the next message
  TesseraMpiRequest head_request;
  std::deque<OutgoingNote> notes;
  int process = -1;  // its pidfd; -1 if it is on another machine
  bool has_ended = false;
};

class Mpi final : public MpiLink {
 public:
  explicit Mpi(const TesseraMpi& mpi);
  ~Mpi() override;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }
  std::int64_t message_bytes() const override { return std::int64_t{1} << 20; }
  std::int64_t received_bytes() const override { return received_bytes_; }
  const std::vector<ProcessPlace>& places() const override { return places_; }

  void post_send(int to, const Envelope& envelope, std::span<const std::byte> bytes) override;
  void post_receive(int from, const Envelope& envelope, std::span<std::byte> bytes) override;
  bool is_pending(int peer) const override {
    const MpiPeer& other = peers_[static_cast<std::size_t>(peer)];
    return !other.in.empty() || !other.out.empty();
  }
  bool progress(nanoseconds wait) override;
  std::optional<Mismatch> mismatch() const override { return mismatch_; }
  void drop_messages() noexcept override;
  void finish() override;
  void post_note(int to, std::string_view bytes, bool is_important) override;
  std::optional<Note> take_note() override;
  bool has_ended(int peer) override;

 private:
  void check(int error) const;
  bool test(TesseraMpiRequest& request, int* from = nullptr, int* count = nullptr);
  void exchange_places();
  void receive_head(int rank);
  void receive_note();
  bool move();
  bool move(Requests& pieces);
  bool move_out(MpiPeer& to);
  bool move_in(int rank);
  bool begin(int rank);
  void receive_pieces(int from, MpiIncoming& message);
  void move_notes();
  bool has_any_ended();

  const TesseraMpi& mpi_;
  int rank_ = 0;
  std::vector<MpiPeer> peers_;
  std::vector<ProcessPlace> places_;
  std::vector<std::unique_ptr<Head>> spare_heads_;
  std::array<char, kMostNoteBytes> note_{};
  TesseraMpiRequest note_request_{};
  std::deque<Note> notes_;
  std::optional<Mismatch> mismatch_;
  std::int64_t received_bytes_ = 0;
  bool is_crowded_ = false;  // more processes than cores on this machine
  bool has_dropped_ = false;
};

void Mpi::check(int error) const {
  if (error == 0) return;
  char text[256] = "";
  mpi_.error_text(error, text, sizeof(text));
  throw RuntimeFault(fmt::format("{}: {}", mpi_.name, text));
}

ProcessPlace own_place() {
  ProcessPlace place{.host = 0, .cores = 0, .pid = getpid()};
  place.host = static_cast<std::uint64_t>(machine_id());
  const std::vector<int> cpus = allowed_cpus();
  place.cores =
      hash_of({reinterpret_cast<const char*>(cpus.data()), cpus.size() * sizeof(int)}, place.host);
  return place;
}

Mpi::Mpi(const TesseraMpi& mpi) : mpi_(mpi) {
  int size = 0;
  check(mpi_.init(&rank_, &size));
  peers_.resize(static_cast<std::size_t>(size));
  exchange_places();
  for (int rank = 0; rank < size; ++rank) {
    if (rank == rank_) continue;
    peers_[static_cast<std::size_t>(rank)].head = std::make_unique<Head>();
    receive_head(rank);
  }
  receive_note();
}

Mpi::~Mpi() {
  for (MpiPeer& peer : peers_) {
    if (peer.process >= 0) close(peer.process);
  }
}

void Mpi::exchange_places() {
  places_.resize(peers_.size());
  const ProcessPlace own = own_place();
  check(mpi_.allgather(&own, places_.data(), sizeof(own)));
  int here = 0;
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    if (places_[rank].host != own.host) continue;
    ++here;
    if (static_cast<int>(rank) == rank_) continue;
    const auto file = syscall(SYS_pidfd_open, static_cast<pid_t>(places_[rank].pid), 0);
    peers_[rank].process = static_cast<int>(file);
  }
  is_crowded_ = here > usable_cores();
}

void Mpi::receive_head(int rank) {
  MpiPeer& from = peers_[static_cast<std::size_t>(rank)];
  check(mpi_.receive(kTesseraHeads, rank, from.head->data(), kHeadBytes, &from.head_request));
}

void Mpi::receive_note() {
  check(mpi_.receive(kTesseraNotes, -1, note_.data(), static_cast<int>(note_.size()),
                     &note_request_));
}

bool Mpi::test(TesseraMpiRequest& request, int* from, int* count) {
  int is_done = 0;
  int sender = 0;
  int size = 0;
  check(mpi_.test(&request, &is_done, &sender, &size));
  if (from != nullptr) *from = sender;
  if (count != nullptr) *count = size;
  return is_done != 0;
}

void Mpi::post_send(int to, const Envelope& envelope, std::span<const std::byte> bytes) {
  require(!has_dropped_, "no message is posted after messages were dropped");
  MpiOutgoing& message = peers_[static_cast<std::size_t>(to)].out.emplace_back();
  if (spare_heads_.empty()) {
    message.head = std::make_unique<Head>();
  } else {
    message.head = std::move(spare_heads_.back());
    spare_heads_.pop_back();
  }
  const MessageHeader header{.envelope = envelope, .bytes = bytes.size()};
  std::memcpy(message.head->data(), &header, sizeof(header));
  const bool is_short = bytes.size() <= kMostInline;
  const std::size_t behind = is_short ? bytes.size() : 0;
  if (behind > 0) std::memcpy(message.head->data() + sizeof(header), bytes.data(), behind);
  check(mpi_.send(kTesseraHeads, to, message.head->data(),
                  static_cast<int>(sizeof(header) + behind), &message.head_request));
  if (is_short) return;
  for (std::int64_t at = 0; at < std::ssize(bytes); at += kMostPiece) {
    const auto size = static_cast<int>(std::min(kMostPiece, std::ssize(bytes) - at));
    check(
        mpi_.send(kTesseraBodies, to, bytes.data() + at, size, &message.pieces.all.emplace_back()));
  }
}

void Mpi::post_receive(int from, const Envelope& envelope, std::span<std::byte> bytes) {
  require(!has_dropped_, "no message is posted after messages were dropped");
  MpiIncoming& message = peers_[static_cast<std::size_t>(from)].in.emplace_back();
  message.wanted = {.envelope = envelope, .bytes = bytes.size()};
  message.bytes = bytes;
}

/// Polls for a short time, letting others compute in between. Then it sleeps, longer each time,
/// since other processes may need this core.
bool Mpi::progress(nanoseconds wait) {
  constexpr nanoseconds kMostSleep = microseconds(200);
  const nanoseconds busy = is_crowded_ ? microseconds(10) : microseconds(100);
  Clock::time_point start;
  nanoseconds sleep = microseconds(5);
  for (std::int64_t turn = 0;; ++turn) {
    if (has_dropped_) return false;
    if (move()) return true;
    if (wait.count() == 0 && turn == 0) break;
    const Clock::time_point now = Clock::now();
    if (turn == 0) start = now;
    if (!notes_.empty() || now - start >= wait) break;
    if (now - start < busy) {
      sched_yield();
      continue;
    }
    if (has_any_ended()) break;
    std::this_thread::sleep_for(sleep);
    sleep = std::min(2 * sleep, kMostSleep);
  }
  return false;
}

bool Mpi::move() {
  bool has_moved = false;
  for (int rank = 0; rank < size(); ++rank) {
    MpiPeer& peer = peers_[static_cast<std::size_t>(rank)];
    if (!peer.out.empty()) has_moved = move_out(peer) || has_moved;
    if (!peer.in.empty()) has_moved = move_in(rank) || has_moved;
  }
  if (!has_moved) move_notes();
  return has_moved;
}

bool Mpi::move(Requests& pieces) {
  const std::size_t before = pieces.num_done;
  while (!pieces.are_done() && test(pieces.all[pieces.num_done])) ++pieces.num_done;
  return pieces.num_done > before;
}

bool Mpi::move_out(MpiPeer& to) {
  bool has_moved = false;
  while (!to.out.empty()) {
    MpiOutgoing& message = to.out.front();
    if (!message.is_head_done) {
      if (!test(message.head_request)) return has_moved;
      message.is_head_done = true;
      has_moved = true;
    }
    if (move(message.pieces)) has_moved = true;
    if (!message.pieces.are_done()) return has_moved;
    spare_heads_.push_back(std::move(message.head));
    to.out.pop_front();
  }
  return has_moved;
}

bool Mpi::move_in(int rank) {
  MpiPeer& from = peers_[static_cast<std::size_t>(rank)];
  bool has_moved = false;
  while (!from.in.empty() && !mismatch_) {
    MpiIncoming& message = from.in.front();
    if (!message.is_begun) {
      if (!begin(rank)) return has_moved;
      has_moved = true;
      if (mismatch_) return has_moved;
    }
    if (move(message.pieces)) has_moved = true;
    if (!message.pieces.are_done()) return has_moved;
    received_bytes_ += std::ssize(message.bytes);
    from.in.pop_front();
  }
  return has_moved;
}

/// Takes the head of a message if it has come. Returns whether it has.
bool Mpi::begin(int rank) {
  MpiPeer& from = peers_[static_cast<std::size_t>(rank)];
  if (!test(from.head_request)) return false;
  MpiIncoming& message = from.in.front();
  MessageHeader found;
  std::memcpy(&found, from.head->data(), sizeof(found));
  if (found.envelope != message.wanted.envelope || found.bytes != message.wanted.bytes) {
    mismatch_ = Mismatch{.peer = rank,
                         .found = found.envelope,
                         .wanted = message.wanted.envelope,
                         .found_bytes = static_cast<std::int64_t>(found.bytes),
                         .wanted_bytes = static_cast<std::int64_t>(message.wanted.bytes)};
    return true;
  }
  message.is_begun = true;
  if (found.bytes > kMostInline) {
    receive_pieces(rank, message);
  } else {
    std::memcpy(message.bytes.data(), from.head->data() + sizeof(found), found.bytes);
  }
  receive_head(rank);
  return true;
}

void Mpi::receive_pieces(int from, MpiIncoming& message) {
  for (std::int64_t at = 0; at < std::ssize(message.bytes); at += kMostPiece) {
    const auto size = static_cast<int>(std::min(kMostPiece, std::ssize(message.bytes) - at));
    check(mpi_.receive(kTesseraBodies, from, message.bytes.data() + at, size,
                       &message.pieces.all.emplace_back()));
  }
}

/// Receives that no message has matched are cancelled. MPI might still write to the memory of other
/// receives, so its functions are not called any more.
void Mpi::drop_messages() noexcept {
  if (has_dropped_) return;
  has_dropped_ = true;
  for (MpiPeer& peer : peers_) {
    for (MpiIncoming& message : peer.in) {
      Requests& pieces = message.pieces;
      for (; !pieces.are_done(); ++pieces.num_done) mpi_.cancel(&pieces.all[pieces.num_done]);
    }
  }
}

void Mpi::finish() {
  const Clock::time_point end = Clock::now() + std::chrono::seconds(1);
  const auto has_notes = [](const MpiPeer& peer) { return !peer.notes.empty(); };
  while (std::any_of(peers_.begin(), peers_.end(), has_notes) && Clock::now() < end) move_notes();
  mpi_.cancel(&note_request_);
  for (int rank = 0; rank < size(); ++rank) {
    if (rank != rank_) mpi_.cancel(&peers_[static_cast<std::size_t>(rank)].head_request);
  }
  has_dropped_ = true;
  check(mpi_.finalize());
}

void Mpi::post_note(int to, std::string_view bytes, bool is_important) {
  require(bytes.size() <= kMostNoteBytes, "a note is short");
  MpiPeer& peer = peers_[static_cast<std::size_t>(to)];
  if (has_dropped_ || peer.has_ended || (!is_important && !peer.notes.empty())) return;
  OutgoingNote& note = peer.notes.emplace_back(OutgoingNote{std::string(bytes), {}});
  check(mpi_.send(kTesseraNotes, to, note.bytes.data(), static_cast<int>(note.bytes.size()),
                  &note.request));
}

void Mpi::move_notes() {
  for (MpiPeer& peer : peers_) {
    while (!peer.notes.empty() && test(peer.notes.front().request)) peer.notes.pop_front();
  }
  int from = 0;
  int count = 0;
  while (test(note_request_, &from, &count)) {
    notes_.push_back({.peer = from, .bytes = {note_.data(), static_cast<std::size_t>(count)}});
    receive_note();
  }
}

std::optional<Link::Note> Mpi::take_note() {
  if (notes_.empty() && !has_dropped_) move_notes();
  if (notes_.empty()) return std::nullopt;
  Note note = std::move(notes_.front());
  notes_.pop_front();
  return note;
}

bool Mpi::has_ended(int peer) {
  MpiPeer& other = peers_[static_cast<std::size_t>(peer)];
  if (other.has_ended || other.process < 0) return other.has_ended;
  pollfd file{.fd = other.process, .events = POLLIN, .revents = 0};
  other.has_ended = poll(&file, 1, 0) == 1;
  return other.has_ended;
}

/// One system call for the processes of this machine. Those that are known to have ended are left
/// out.
bool Mpi::has_any_ended() {
  std::vector<pollfd> files;
  for (const MpiPeer& peer : peers_) {
    const int file = peer.has_ended ? -1 : peer.process;
    files.push_back({.fd = file, .events = POLLIN, .revents = 0});
  }
  return poll(files.data(), files.size(), 0) > 0;
}

}  // namespace

std::unique_ptr<MpiLink> make_mpi_link(const TesseraMpi& mpi) { return std::make_unique<Mpi>(mpi); }

}  // namespace tessera::run
