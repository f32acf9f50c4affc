// A transport over any link: it knows collectives, and finds processes that end, stop or diverge.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "run/transport/link.h"
#include "run/transport/notes.h"
#include "run/transport/running_time.h"
#include "run/transport/transport.h"
#include "run/transport/verdict.h"

namespace tessera::run {

struct LinkOptions {
  int processes_per_group = 1;
  /// A process that gives no sign of life for this long has failed.
  std::chrono::milliseconds timeout{60000};
};

/// A thread of this transport sends beats and reads notes while the process computes. During an
/// exchange, the exchanging thread does this.
class LinkTransport final : public Transport {
 public:
  LinkTransport(std::unique_ptr<Link> link, const LinkOptions& options);
  ~LinkTransport() override;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }
  void begin(const CollectiveLabel& label) override;
  void exchange(std::span<const Send> sends, std::span<const Receive> receives) override;
  void give_up(std::string_view why) noexcept override;
  std::int64_t received_bytes() const override;
  std::int64_t message_bytes() const override { return message_bytes_; }

  /// Tells the others that this process has done its work. Call it after the last collective.
  void leave();
  /// After a failure: whether this process reports it. If not, another one does.
  bool is_reporter() const;
  void set_options(const LinkOptions& options);

 private:
  using Lock = std::unique_lock<std::mutex>;

  struct Peer {
    std::chrono::nanoseconds silence{0};
    bool has_left = false;
    std::uint64_t num_shared = 0;  // collectives in which both take part
    std::uint64_t last = 0;        // the number of the last one of these
  };

  std::string name(int rank) const { return rank_name(rank, size(), options_.processes_per_group); }
  std::string where() const;
  Peer& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  Link::Envelope envelope_to(int rank);
  void post(std::span<const Send> sends, std::span<const Receive> receives);
  void finish(std::span<const Send> sends, std::span<const Receive> receives);
  int first_awaited() const;
  void count_time();
  void look();
  void send_beats();
  void take_notes();
  Beat own_beat() const;
  std::optional<Finding> fault();
  std::optional<Finding> silent_peers();
  Finding diverged(const Link::Mismatch& mismatch) const;
  bool is_told() const;
  void tell(Finding finding);
  void gather();
  void settle(Finding finding);
  [[noreturn]] void fail(Finding finding);
  std::string text_of_two_calls() const;
  [[noreturn]] void throw_verdict() const;
  void beat_in_background();

  mutable std::mutex mutex_;  // of everything below, except the first four
  const int rank_;
  const std::int64_t message_bytes_;
  std::thread thread_;
  std::condition_variable wake_;
  std::unique_ptr<Link> link_;
  LinkOptions options_;
  std::chrono::nanoseconds patience_{0};
  std::chrono::nanoseconds interval_{0};  // between beats
  std::vector<Peer> peers_;
  std::vector<std::optional<Beat>> beats_;
  std::vector<std::optional<Finding>> findings_;
  std::optional<Verdict> verdict_;
  RunningTime time_{std::chrono::nanoseconds(0)};
  std::chrono::steady_clock::time_point next_beat_;
  std::chrono::nanoseconds stuck_{0};  // since a message moved in this exchange
  const CollectiveLabel* label_ = nullptr;
  std::uint64_t number_ = 0;  // collectives that have begun
  std::uint64_t hash_ = 0;    // of the label
  bool is_exchanging_ = false;
  bool is_closing_ = false;
};

}  // namespace tessera::run
