#include "profile/space.h"

#include <fmt/format.h>
#include <map>
#include <protozero/pbf_writer.hpp>

namespace tessera::profile {

namespace {

using protozero::pbf_writer;

/// The ids of a plane's stat names. Events refer to names by id.
class StatNames {
 public:
  std::int64_t id(std::string_view name) {
    return ids_.try_emplace(name, static_cast<std::int64_t>(ids_.size()) + 1).first->second;
  }
  const std::map<std::string_view, std::int64_t>& all() const { return ids_; }

 private:
  std::map<std::string_view, std::int64_t> ids_;
};

void add_value(pbf_writer& stat, const StatValue& value) {
  if (const auto* number = std::get_if<double>(&value)) {
    stat.add_double(2, *number);
  } else if (const auto* count = std::get_if<std::uint64_t>(&value)) {
    stat.add_uint64(3, *count);
  } else if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    stat.add_int64(4, *integer);
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    stat.add_string(5, *text);
  } else {
    stat.add_bytes(6, std::get<Bytes>(value).data);
  }
}

class PlaneWriter {
 public:
  PlaneWriter(const Plane& plane, std::int64_t id, std::int64_t start_ns, std::string& out)
      : plane_(plane), id_(id), start_ns_(start_ns), writer_(out) {}

  void write() {
    writer_.add_int64(1, id_);
    writer_.add_string(2, plane_.name);
    for (const Line& line : plane_.lines) add_line(line);
    for (std::size_t i = 0; i < plane_.kinds.size(); ++i) add_kind(i);
    for (const Stat& stat : plane_.stats) add_stat(writer_, 6, stat);
    for (const auto& [name, id] : names_.all()) {
      pbf_writer entry(writer_, 5);
      entry.add_int64(1, id);
      pbf_writer metadata(entry, 2);
      metadata.add_int64(1, id);
      metadata.add_string(2, name.data(), name.size());
    }
  }

 private:
  void add_stat(pbf_writer& to, protozero::pbf_tag_type tag, const Stat& stat) {
    pbf_writer writer(to, tag);
    writer.add_int64(1, names_.id(stat.name));
    add_value(writer, stat.value);
  }

  void add_line(const Line& line) {
    pbf_writer writer(writer_, 3);
    writer.add_int64(1, line.id);
    writer.add_string(2, line.name);
    writer.add_int64(3, start_ns_);
    for (const Event& event : line.events) add_event(writer, event);
  }

  void add_event(pbf_writer& line, const Event& event) {
    constexpr std::int64_t kPsPerNs = 1000;
    constexpr std::int64_t kArrow = 7;  // a context type that no other numbers use
    pbf_writer writer(line, 4);
    writer.add_int64(1, static_cast<std::int64_t>(event.kind) + 1);
    writer.add_int64(2, event.start_ns * kPsPerNs);
    writer.add_int64(3, (event.end_ns - event.start_ns) * kPsPerNs);
    if (event.step != Event::kNone) add_stat(writer, 4, {"group_id", event.step});
    if (event.sends != Event::kNone) {
      add_stat(writer, 4, {"_pt", kArrow});
      add_stat(writer, 4, {"_p", event.sends});
    }
    if (event.receives != Event::kNone) {
      add_stat(writer, 4, {"_ct", kArrow});
      add_stat(writer, 4, {"_c", event.receives});
    }
    for (const Stat& stat : event.stats) add_stat(writer, 4, stat);
  }

  void add_kind(std::size_t number) {
    const EventKind& kind = plane_.kinds[number];
    const auto id = static_cast<std::int64_t>(number) + 1;
    pbf_writer entry(writer_, 4);
    entry.add_int64(1, id);
    pbf_writer metadata(entry, 2);
    metadata.add_int64(1, id);
    metadata.add_string(2, kind.name);
    if (!kind.display_name.empty()) metadata.add_string(4, kind.display_name);
    for (const Stat& stat : kind.stats) add_stat(metadata, 5, stat);
  }

  const Plane& plane_;
  std::int64_t id_;
  std::int64_t start_ns_;
  pbf_writer writer_;
  StatNames names_;
};

}  // namespace

std::string to_xspace(const Space& space) {
  std::string data;
  pbf_writer writer(data);
  std::int64_t id = 0;
  for (const Plane& plane : space.planes) {
    std::string message;
    PlaneWriter(plane, ++id, space.start_ns, message).write();
    writer.add_message(1, message);
  }
  for (const std::string& warning : space.warnings) writer.add_string(3, warning);
  writer.add_string(4, space.host);
  return data + space.more;  // concatenated messages are merged
}

// --- chrome://tracing

namespace {

std::string in_quotes(std::string_view text) {
  std::string json = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      json += '\\';
      json += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      json += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      json += c;
    }
  }
  return json + "\"";
}

/// Integer and string stats, as members of a JSON object.
std::string members(const std::vector<Stat>& stats) {
  std::string json;
  const auto add = [&](std::string_view name, const std::string& value) {
    json += (json.empty() ? "" : ",") + in_quotes(name) + ":" + value;
  };
  for (const Stat& stat : stats) {
    if (const auto* text = std::get_if<std::string>(&stat.value)) add(stat.name, in_quotes(*text));
    if (const auto* number = std::get_if<std::int64_t>(&stat.value))
      add(stat.name, std::to_string(*number));
    if (const auto* count = std::get_if<std::uint64_t>(&stat.value))
      add(stat.name, std::to_string(*count));
  }
  return json;
}

class ChromeWriter {
 public:
  std::string write(const Space& space) {
    steps_ = space.steps;
    json_ = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
    int process = 0;
    for (const Plane& plane : space.planes) {
      if (plane.lines.empty()) continue;
      add_plane(plane, ++process);
    }
    json_ += "]}\n";
    return std::move(json_);
  }

 private:
  void add(const std::string& event) {
    if (json_.back() == '}') json_ += ",\n";
    json_ += event;
  }

  void add_plane(const Plane& plane, int process) {
    add(fmt::format(R"({{"ph":"M","pid":{},"name":"process_name","args":{{"name":{}}}}})", process,
                    in_quotes(plane.name)));
    std::vector<std::string> arguments;
    for (const EventKind& kind : plane.kinds) arguments.push_back(members(kind.stats));
    for (std::size_t i = 0; i < plane.lines.size(); ++i) {
      const Line& line = plane.lines[i];
      const std::size_t thread = i + 1;
      add(fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"thread_name","args":{{"name":{}}}}})",
                      process, thread, in_quotes(line.name)));
      const std::string place = fmt::format(R"("pid":{},"tid":{})", process, thread);
      for (const Event& event : line.events) add_event(plane, arguments, event, place);
    }
  }

  static std::string us(std::int64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }

  void add_event(const Plane& plane, const std::vector<std::string>& arguments, const Event& event,
                 const std::string& place) {
    const EventKind& kind = plane.kinds[event.kind];
    std::string more = arguments[event.kind];
    const auto join = [&](const std::string& text) {
      if (!text.empty()) more += (more.empty() ? "" : ",") + text;
    };
    if (event.step != Event::kNone) {
      join(fmt::format("\"step\":{}", steps_.at(static_cast<std::size_t>(event.step))));
    }
    join(members(event.stats));
    add(fmt::format(R"({{"ph":"X",{},"ts":{},"dur":{},"name":{},"args":{{{}}}}})", place,
                    us(event.start_ns), us(event.end_ns - event.start_ns),
                    in_quotes(kind.display_name.empty() ? kind.name : kind.display_name), more));
    if (event.sends != Event::kNone) add_arrow("s", event.sends, event.start_ns, place);
    if (event.receives != Event::kNone) add_arrow("f", event.receives, event.start_ns, place);
  }

  void add_arrow(std::string_view phase, std::int64_t id, std::int64_t ns,
                 const std::string& place) {
    add(fmt::format(
        R"({{"ph":"{}",{},"ts":{},"id":{},"bp":"e","name":"transfer","cat":"transfer"}})", phase,
        place, us(ns), id));
  }

  std::string json_;
  std::vector<std::int64_t> steps_;
};

}  // namespace

std::string to_chrome_trace(const Space& space) { return ChromeWriter().write(space); }

}  // namespace tessera::profile
