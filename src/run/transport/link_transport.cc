#include "run/transport/link_transport.h"

#include <algorithm>
#include <fmt/format.h>

#include <tessera/error.h>

#include "run/machine/clock.h"

namespace tessera::run {

std::string rank_name(int rank, int num_processes, int processes_per_group) {
  if (processes_per_group == num_processes) return fmt::format("rank {}", rank);
  return fmt::format("rank {} (group {}, process {})", rank, rank / processes_per_group,
                     rank % processes_per_group);
}

namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

std::uint64_t hash_of_label(const CollectiveLabel& label) {
  // `op` is left out: the two ends of a transfer describe it differently.
  const std::uint64_t line = static_cast<std::uint64_t>(label.span.line) * 0x9e3779b97f4a7c15U;
  return hash_of(label.span.file, hash_of(label.kind)) ^ line;
}

/// Whether a process heard of the failure while it computed.
bool lacks_place(const Finding& finding) {
  return finding.reason == Reason::told && finding.where.empty();
}

}  // namespace

LinkTransport::LinkTransport(std::unique_ptr<Link> link, const LinkOptions& options)
    : rank_(link->rank()),
      message_bytes_(link->message_bytes()),
      link_(std::move(link)),
      peers_(static_cast<std::size_t>(link_->size())),
      beats_(peers_.size()),
      findings_(peers_.size()) {
  set_options(options);
  if (size() > 1) thread_ = std::thread([this] { beat_in_background(); });
}

LinkTransport::~LinkTransport() {
  {
    const Lock lock(mutex_);
    is_closing_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void LinkTransport::set_options(const LinkOptions& options) {
  const Lock lock(mutex_);
  options_ = options;
  // The rest of the timeout is left for telling the others.
  patience_ = options.timeout * 3 / 4;
  interval_ = std::clamp<nanoseconds>(patience_ / 16, milliseconds(1), milliseconds(2000));
  // If this process is stopped in between, that time counts as at most a quarter of the patience.
  time_ = RunningTime(4 * interval_);
  next_beat_ = Clock::now();
  wake_.notify_all();
}

/// Shows that this process lives while it computes.
void LinkTransport::beat_in_background() {
  Lock lock(mutex_);
  while (!is_closing_) {
    wake_.wait_for(lock, interval_);
    if (is_closing_ || verdict_) continue;
    link_->progress(nanoseconds(0));
    look();
    if (is_told() && !findings_[static_cast<std::size_t>(rank_)]) tell({.reason = Reason::told});
  }
}

/// `all_reduce 12 (dot_general at model.cc:41)`. The label is only used during an exchange, because
/// it may be gone afterwards.
std::string LinkTransport::where() const {
  if (label_ == nullptr || !is_exchanging_) return "the start";
  std::string text = fmt::format("{} {} ({}", label_->kind, number_, label_->op);
  if (!label_->span.file.empty()) text += " at " + to_string(label_->span);
  return text + ")";
}

void LinkTransport::begin(const CollectiveLabel& label) {
  const std::uint64_t hash = hash_of_label(label);
  const Lock lock(mutex_);
  label_ = &label;
  hash_ = hash;
  ++number_;
}

std::int64_t LinkTransport::received_bytes() const {
  const Lock lock(mutex_);
  return link_->received_bytes();
}

/// Groups run different collectives, so two processes count those in which both take part.
Link::Envelope LinkTransport::envelope_to(int rank) {
  Peer& other = peer(rank);
  if (other.last != number_) {
    other.last = number_;
    ++other.num_shared;
  }
  return {.number = other.num_shared, .hash = hash_};
}

void LinkTransport::post(std::span<const Send> sends, std::span<const Receive> receives) {
  // Empty tiles are not sent.
  for (const Receive& receive : receives) {
    if (receive.bytes.empty()) continue;
    link_->post_receive(receive.from, envelope_to(receive.from), receive.bytes);
  }
  for (const Send& send : sends) {
    if (!send.bytes.empty()) link_->post_send(send.to, envelope_to(send.to), send.bytes);
  }
}

int LinkTransport::first_awaited() const {
  for (int rank = 0; rank < size(); ++rank) {
    if (link_->is_pending(rank)) return rank;
  }
  return -1;
}

void LinkTransport::exchange(std::span<const Send> sends, std::span<const Receive> receives) {
  const Lock lock(mutex_);
  if (verdict_) throw RuntimeFault("the processes of this run have been told to end");
  is_exchanging_ = true;
  try {
    finish(sends, receives);
  } catch (const std::exception& error) {
    // The memory of the messages is about to be freed.
    if (!verdict_) settle({.reason = Reason::failed, .culprit = rank_, .text = error.what()});
    is_exchanging_ = false;
    throw;
  }
  is_exchanging_ = false;
}

/// Returns when all messages are done.
void LinkTransport::finish(std::span<const Send> sends, std::span<const Receive> receives) {
  count_time();
  stuck_ = nanoseconds(0);
  if (is_told()) fail({.reason = Reason::told});
  post(sends, receives);
  while (first_awaited() >= 0) {
    // Longer waits are of no use, since look() has to be called this often.
    const bool has_moved = link_->progress(interval_ / 2);
    if (has_moved) stuck_ = nanoseconds(0);
    if (has_moved && !link_->mismatch() && Clock::now() < next_beat_) continue;
    look();
    if (std::optional<Finding> found = fault()) fail(std::move(*found));
  }
}

void LinkTransport::count_time() {
  const nanoseconds passed = time_.look();
  for (Peer& each : peers_) each.silence += passed;
  stuck_ += passed;
}

/// Keeps track of time, sends beats when they are due, and reads notes.
void LinkTransport::look() {
  count_time();
  if (Clock::now() >= next_beat_) send_beats();
  take_notes();
}

Beat LinkTransport::own_beat() const {
  if (!is_exchanging_) return {};
  return {.waits_for = first_awaited(),
          .stuck_ms =
              static_cast<std::uint32_t>(std::chrono::duration_cast<milliseconds>(stuck_).count()),
          .collective = hash_ ^ (number_ * 0x9e3779b97f4a7c15U),
          .where = where()};
}

void LinkTransport::send_beats() {
  next_beat_ = Clock::now() + interval_;
  const std::string bytes = to_bytes({.beat = own_beat()});
  for (int rank = 0; rank < size(); ++rank) {
    if (rank != rank_ && !peer(rank).has_left) link_->post_note(rank, bytes, false);
  }
}

void LinkTransport::take_notes() {
  while (const std::optional<Link::Note> taken = link_->take_note()) {
    const auto from = static_cast<std::size_t>(taken->peer);
    Note note = note_of(taken->bytes);
    peers_[from].silence = nanoseconds(0);
    if (!note.beat && !note.finding) peers_[from].has_left = true;
    if (note.beat) beats_[from] = std::move(note.beat);
    // A later finding of a process explains no more than its first, but may say where it is.
    if (!note.finding) continue;
    if (!findings_[from] || lacks_place(*findings_[from]))
      findings_[from] = std::move(note.finding);
  }
}

bool LinkTransport::is_told() const {
  return std::any_of(findings_.begin(), findings_.end(),
                     [](const auto& finding) { return finding.has_value(); });
}

/// What is wrong with a process that this one waits for.
std::optional<Finding> LinkTransport::fault() {
  std::vector<int> ended;
  for (int rank = 0; rank < size(); ++rank) {
    if (rank != rank_ && link_->has_ended(rank)) ended.push_back(rank);
  }
  // What a process said before it ended explains more.
  if (!ended.empty()) take_notes();
  if (is_told()) return Finding{.reason = Reason::told};
  if (const auto mismatch = link_->mismatch()) return diverged(*mismatch);
  for (const int rank : ended) {
    if (peer(rank).has_left && !link_->is_pending(rank)) continue;
    return Finding{.reason = Reason::ended, .culprit = rank, .text = "has ended"};
  }
  if (std::optional<Finding> silent = silent_peers()) return silent;
  if (stuck_ < patience_) return std::nullopt;
  beats_[static_cast<std::size_t>(rank_)] = own_beat();
  const auto least = std::chrono::duration_cast<milliseconds>(patience_ / 2).count();
  return deadlock_of(beats_, rank_, static_cast<std::uint32_t>(least),
                     [&](int rank) { return name(rank); });
}

/// Blames the first process that was silent for too long. Also names the others that stopped
/// answering at nearly the same time, as all processes of a failing machine do: some of them may
/// have waited for the first.
std::optional<Finding> LinkTransport::silent_peers() {
  constexpr std::size_t kMostNamed = 8;
  const auto is_silent = [&](int rank, nanoseconds for_at_least) {
    return rank != rank_ && !peer(rank).has_left && peer(rank).silence >= for_at_least;
  };
  int first = 0;
  while (first < size() && !is_silent(first, patience_)) ++first;
  if (first == size()) return std::nullopt;
  std::vector<int> others;
  for (int rank = 0; rank < size(); ++rank) {
    if (rank != first && is_silent(rank, patience_ / 2)) others.push_back(rank);
  }
  const std::chrono::duration<double> seconds = options_.timeout;
  std::string text = fmt::format("did not answer within the timeout of {:.4g} s", seconds.count());
  for (std::size_t i = 0; i < std::min(others.size(), kMostNamed - 1); ++i)
    text += (i == 0 ? ", nor did " : ", ") + name(others[i]);
  if (others.size() >= kMostNamed)
    text += fmt::format(" and {} more", others.size() + 1 - kMostNamed);
  return Finding{.reason = Reason::silent, .culprit = first, .text = std::move(text)};
}

Finding LinkTransport::diverged(const Link::Mismatch& mismatch) const {
  std::string text = "has diverged: it sent data of another collective";
  if (mismatch.found == mismatch.wanted) {
    text = fmt::format("has diverged: it sent {} bytes where {} were expected",
                       mismatch.found_bytes, mismatch.wanted_bytes);
  }
  return {.reason = Reason::diverged, .culprit = mismatch.peer, .text = std::move(text)};
}

/// Tells all others.
void LinkTransport::tell(Finding finding) {
  if (finding.where.empty() && is_exchanging_) finding.where = where();
  finding.text_hash = hash_of(finding.text);
  const std::string bytes = to_bytes({.finding = finding});
  findings_[static_cast<std::size_t>(rank_)] = std::move(finding);
  for (int rank = 0; rank < size(); ++rank) {
    if (rank != rank_) link_->post_note(rank, bytes, true);
  }
}

/// Waits for the findings of all processes that can answer, at most an eighth of the timeout.
void LinkTransport::gather() {
  const auto& own = findings_[static_cast<std::size_t>(rank_)];
  const Clock::time_point end =
      Clock::now() +
      std::clamp<nanoseconds>(options_.timeout / 8, milliseconds(20), milliseconds(2000));
  const auto has_answered = [&](int rank) {
    const auto& found = findings_[static_cast<std::size_t>(rank)];
    // The collectives in which all processes are show which process has diverged.
    if (found && !(own->reason == Reason::diverged && lacks_place(*found))) return true;
    if (peer(rank).has_left) return true;
    return link_->has_ended(rank) || peer(rank).silence >= patience_;
  };
  // A launcher that sees a process end kills the others at once. The first process that lives would
  // report it anyway, so it need not know what the others have found.
  if (own->reason == Reason::ended) {
    int first = 0;
    while (first < rank_ && link_->has_ended(first)) ++first;
    if (first == rank_) return;
  }
  for (;;) {
    take_notes();
    bool have_all = true;
    for (int rank = 0; rank < size(); ++rank) have_all = have_all && has_answered(rank);
    if (have_all || Clock::now() >= end) return;
    link_->progress(milliseconds(1));
  }
}

void LinkTransport::settle(Finding finding) {
  take_notes();
  // An exception may be a reaction to a failure that another process has reported.
  if (is_told()) finding = {.reason = Reason::told};
  const auto& own = findings_[static_cast<std::size_t>(rank_)];
  if (!own || (is_exchanging_ && lacks_place(*own))) tell(std::move(finding));
  gather();
  verdict_ = verdict_of(findings_, rank_);
  link_->drop_messages();
}

void LinkTransport::fail(Finding finding) {
  settle(std::move(finding));
  throw_verdict();
}

/// Two processes made different calls, and the one that noticed it has diverged.
std::string LinkTransport::text_of_two_calls() const {
  const auto where_of = [&](int rank) { return findings_[static_cast<std::size_t>(rank)]->where; };
  const int teller = verdict_->teller;
  const int sender = verdict_->sender;
  return fmt::format("{} has diverged: it and {} made different calls: it is in {}; {} is in {}",
                     name(teller), name(sender), where_of(teller), name(sender), where_of(sender));
}

void LinkTransport::throw_verdict() const {
  const Finding& finding = verdict_->finding;
  if (verdict_->sender >= 0) {
    std::string text = text_of_two_calls();
    if (rank_ != verdict_->teller && rank_ != verdict_->sender)
      text +=
          fmt::format("; {} was told by {} in {}", name(rank_), name(verdict_->teller), where());
    throw RuntimeFault(text);
  }
  std::string text = finding.text;
  if (finding.reason == Reason::failed) text = "has failed: " + text;
  const auto& culprit = findings_[static_cast<std::size_t>(finding.culprit)];
  if (finding.reason == Reason::diverged && culprit &&
      text.find(culprit->where) == std::string::npos) {
    text += "; it is in " + culprit->where;
  }
  std::string how = "waited in";
  if (verdict_->teller != rank_)
    how = "was told by " + name(verdict_->teller) + " in";
  else if (finding.reason == Reason::diverged)
    how = "noticed it in";
  else if (finding.reason == Reason::ended)
    how = "waited for it in";
  throw RuntimeFault(
      fmt::format("{} {}; {} {} {}", name(finding.culprit), text, name(rank_), how, where()));
}

void LinkTransport::give_up(std::string_view why) noexcept {
  try {
    const Lock lock(mutex_);
    if (verdict_) return;
    settle({.reason = Reason::failed, .culprit = rank_, .text = std::string(why)});
    // No exchange has thrown here, so this error has its own cause. Others may have ended the run
    // because of it a moment ago.
    const std::uint64_t hash = hash_of(why);
    const auto is_same = [&](const auto& finding) {
      return finding && finding->reason == Reason::failed && finding->text_hash == hash;
    };
    const bool is_known = std::any_of(findings_.begin(), findings_.end(), is_same);
    if (!is_known) verdict_->is_reporter = true;
  } catch (...) {
    link_->drop_messages();  // the others will notice that this process ends
  }
}

bool LinkTransport::is_reporter() const {
  const Lock lock(mutex_);
  return !verdict_ || verdict_->is_reporter;
}

void LinkTransport::leave() {
  const Lock lock(mutex_);
  is_closing_ = true;  // no beats after this
  for (int rank = 0; rank < size(); ++rank) {
    if (rank != rank_) link_->post_note(rank, to_bytes({}), true);
  }
  // A link should not close while notes are on their way.
  const Clock::time_point end = Clock::now() + std::min(options_.timeout / 8, milliseconds(1000));
  const auto is_here = [&](int rank) {
    return rank != rank_ && !peer(rank).has_left && !link_->has_ended(rank);
  };
  for (int rank = 0; rank < size() && Clock::now() < end;) {
    if (!is_here(rank)) {
      ++rank;
      continue;
    }
    link_->progress(milliseconds(1));
    take_notes();
  }
}

}  // namespace tessera::run
