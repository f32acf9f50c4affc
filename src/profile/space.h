// A profile as rows of events, as TensorBoard's profile plugin and chrome://tracing draw it. What
// the names of planes, lines and stats mean is up to the plugin; see README.md.
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
/// Names are literals.
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
  std::size_t kind;  // of its plane
  std::int64_t start_ns;
  std::int64_t end_ns;
  std::int64_t step = kNone;  // its place among all steps
  // An arrow leads from the event that sends a number to the one that receives it.
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

/// Times of events count from `start_ns`, which is the time since 1970.
struct Space {
  std::string host;
  std::int64_t start_ns = 0;
  std::vector<Plane> planes = {};
  std::vector<std::int64_t> steps = {};  // their numbers
  std::vector<std::string> warnings = {};
};

/// The message XSpace of TensorBoard's profile plugin.
std::string to_xspace(const Space& space);
/// JSON as Perfetto and chrome://tracing read it.
std::string to_chrome_trace(const Space& space);

}  // namespace tessera::profile
