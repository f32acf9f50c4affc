// Reads the files of profile::stop_trace(), by the field numbers of XSpace and HloProto.
#pragma once

#include <fstream>
#include <map>
#include <protozero/pbf_reader.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace tessera::testing {

using protozero::pbf_reader;

inline std::string bytes_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Numeric and text stats, by name.
struct ReadStats {
  std::map<std::string, double> numbers;
  std::map<std::string, std::string> texts;
  double number(const std::string& name) const {
    const auto found = numbers.find(name);
    return found == numbers.end() ? -1 : found->second;
  }
};

struct ReadKind {
  std::string name, display_name;
  ReadStats stats;
};

struct ReadEvent {
  std::int64_t kind = 0;
  std::int64_t start_ps = 0;
  std::int64_t length_ps = 0;
  ReadStats stats;
};

struct ReadLine {
  std::string name;
  std::vector<ReadEvent> events;
};

struct ReadPlane {
  std::string name;
  std::vector<ReadLine> lines;
  std::map<std::int64_t, ReadKind> kinds;
  ReadStats stats;

  std::vector<ReadEvent> events(const std::string& line) const {
    std::vector<ReadEvent> all;
    for (const ReadLine& one : lines) {
      if (one.name == line) all.insert(all.end(), one.events.begin(), one.events.end());
    }
    return all;
  }
};

class SpaceReader {
 public:
  explicit SpaceReader(const std::string& data) {
    pbf_reader space(data);
    while (space.next(1)) planes_.push_back(read_plane(space.get_message()));
  }
  const std::vector<ReadPlane>& planes() const { return planes_; }
  const ReadPlane& plane(const std::string& name) const {
    for (const ReadPlane& plane : planes_) {
      if (plane.name == name) return plane;
    }
    throw std::runtime_error("no plane " + name);
  }

 private:
  using Names = std::map<std::int64_t, std::string>;

  static Names read_names(pbf_reader plane) {
    Names names;
    while (plane.next(5)) {
      pbf_reader entry = plane.get_message();
      std::int64_t id = 0;
      while (entry.next()) {
        if (entry.tag() == 1) {
          id = entry.get_int64();
        } else {
          pbf_reader value = entry.get_message();
          while (value.next(2)) names[id] = value.get_string();
        }
      }
    }
    return names;
  }

  static void read_stat(pbf_reader stat, const Names& names, ReadStats& to) {
    std::string name;
    while (stat.next()) {
      switch (stat.tag()) {
        case 1:
          name = names.at(stat.get_int64());
          break;
        case 2:
          to.numbers[name] = stat.get_double();
          break;
        case 3:
          to.numbers[name] = static_cast<double>(stat.get_uint64());
          break;
        case 4:
          to.numbers[name] = static_cast<double>(stat.get_int64());
          break;
        default:
          to.texts[name] = stat.get_string();
      }
    }
  }

  static ReadEvent read_event(pbf_reader message, const Names& names) {
    ReadEvent event;
    while (message.next()) {
      switch (message.tag()) {
        case 1:
          event.kind = message.get_int64();
          break;
        case 2:
          event.start_ps = message.get_int64();
          break;
        case 3:
          event.length_ps = message.get_int64();
          break;
        default:
          read_stat(message.get_message(), names, event.stats);
      }
    }
    return event;
  }

  static ReadLine read_line(pbf_reader message, const Names& names) {
    ReadLine line;
    while (message.next()) {
      if (message.tag() == 2) {
        line.name = message.get_string();
      } else if (message.tag() == 4) {
        line.events.push_back(read_event(message.get_message(), names));
      } else {
        message.skip();
      }
    }
    return line;
  }

  static ReadKind read_kind(pbf_reader message, const Names& names) {
    ReadKind kind;
    while (message.next()) {
      if (message.tag() == 2) {
        kind.name = message.get_string();
      } else if (message.tag() == 4) {
        kind.display_name = message.get_string();
      } else if (message.tag() == 5) {
        read_stat(message.get_message(), names, kind.stats);
      } else {
        message.skip();
      }
    }
    return kind;
  }

  static ReadPlane read_plane(pbf_reader message) {
    const Names names = read_names(message);
    ReadPlane plane;
    while (message.next()) {
      if (message.tag() == 2) {
        plane.name = message.get_string();
      } else if (message.tag() == 3) {
        plane.lines.push_back(read_line(message.get_message(), names));
      } else if (message.tag() == 4) {
        pbf_reader entry = message.get_message();
        entry.next(1);
        const std::int64_t id = entry.get_int64();
        entry.next(2);
        plane.kinds[id] = read_kind(entry.get_message(), names);
      } else if (message.tag() == 6) {
        read_stat(message.get_message(), names, plane.stats);
      } else {
        message.skip();
      }
    }
    return plane;
  }

  std::vector<ReadPlane> planes_;
};

/// The memory of a program as the memory viewer shows it.
struct ReadBuffers {
  std::int64_t ports = 0;      // bytes of arguments and results
  std::int64_t arena = 0;      // size of the allocation of everything else
  std::int64_t peak = 0;       // peak of the heap trace
  std::int64_t left = 0;       // bytes that the heap trace does not free
  std::size_t num_events = 0;  // events of the heap trace
};

inline ReadBuffers read_buffers(const std::string& hlo) {
  ReadBuffers result;
  std::map<std::int64_t, std::int64_t> sizes;
  pbf_reader proto(hlo);
  proto.next(3);
  pbf_reader assignment = proto.get_message();
  while (assignment.next()) {
    const std::uint32_t tag = assignment.tag();  // read first: reading the field clears it
    pbf_reader message = assignment.get_message();
    std::map<std::uint32_t, std::int64_t> numbers;
    switch (tag) {
      case 1:
        message.next(1);
        {
          const std::int64_t id = message.get_int64();
          message.next(2);
          sizes[id] = message.get_int64();
        }
        break;
      case 3:
        while (message.next()) {
          const std::uint32_t number = message.tag();
          if (number <= 7) {
            numbers[number] = message.get_int64();
          } else {
            message.skip();
          }
        }
        (numbers.count(5) + numbers.count(7) != 0 ? result.ports : result.arena) += numbers[2];
        break;
      default:
        while (message.next(1)) {
          pbf_reader event = message.get_message();
          std::int64_t kind = 0, id = 0;
          while (event.next()) {
            if (event.tag() == 1) {
              kind = event.get_enum();
            } else if (event.tag() == 2) {
              id = event.get_int64();
            } else {
              event.skip();
            }
          }
          result.left += kind == 0 ? sizes.at(id) : -sizes.at(id);
          result.peak = std::max(result.peak, result.left);
          result.num_events += 1;
        }
    }
  }
  return result;
}

}  // namespace tessera::testing
