// A profile as rows of events, which TensorBoard's profile plugin and chrome://tracing draw. The
// plugin gives the names of planes, lines and stats their meaning; see README.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tessera::profile {

struct Bytes {
  std::string data;
};
using StatValue = std::variant<std::int64_t, std::uint64_t, double, std::string, Bytes>;
/// `name` must be a string literal, because only a view of it is kept.
struct Stat {
  std::string_view name;
  StatValue value;
};

/// What events of one kind have in common.
struct EventKind {
  std::string name;
  std::string display_name = {};
  std::vector<Stat> stats = {};
};

struct Event {
  static constexpr std::int64_t kNone = -1;
  std::size_t kind;  // index into the plane's kinds
  std::int64_t start_ns;
  std::int64_t end_ns;
  std::int64_t step = kNone;  // index into Space::steps
  // An arrow is drawn from the event that sends a number to the event that receives that number.
  std::int64_t sends = kNone;
  std::int64_t receives = kNone;
  std::vector<Stat> stats = {};
};

struct Line {
  std::string name;
  std::int64_t id;
  std::vector<Event> events;
};

struct Plane {
  std::string name;
  std::vector<Stat> stats = {};
  std::vector<EventKind> kinds = {};
  std::vector<Line> lines = {};

  std::size_t add_kind(EventKind kind) {
    kinds.push_back(std::move(kind));
    return kinds.size() - 1;
  }
};

/// `start_ns` is in nanoseconds since 1970. The times of events are relative to it.
struct Space {
  std::string host;
  std::int64_t start_ns = 0;
  std::vector<Plane> planes = {};
  std::vector<std::int64_t> steps = {};  // step numbers
  std::vector<std::string> warnings = {};
  /// The recording of another profiler: a serialized XSpace, which is merged with this one.
  std::string more = {};
};

/// The serialized message XSpace, which TensorBoard's profile plugin reads.
std::string to_xspace(const Space& space);
/// JSON for Perfetto and chrome://tracing, without what another profiler recorded.
std::string to_chrome_trace(const Space& space);

}  // namespace tessera::profile
