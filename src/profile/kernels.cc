#include "profile/kernels.h"

#include <algorithm>
#include <functional>
#include <map>
#include <protozero/pbf_reader.hpp>
#include <tuple>
#include <utility>

namespace tessera::profile {

namespace {

using protozero::data_view;
using protozero::pbf_reader;

// The messages XSpace, XPlane, XLine, XEvent and XEventMetadata: openxla/xla,
// third_party/tsl/tsl/profiler/protobuf/xplane.proto.
constexpr protozero::pbf_tag_type kPlane = 1;
namespace plane {
constexpr protozero::pbf_tag_type kName = 2;
constexpr protozero::pbf_tag_type kLine = 3;
constexpr protozero::pbf_tag_type kEventNames = 4;
}  // namespace plane
namespace line {
constexpr protozero::pbf_tag_type kName = 2;
constexpr protozero::pbf_tag_type kEvent = 4;
}  // namespace line
namespace event {
constexpr protozero::pbf_tag_type kNameId = 1;
constexpr protozero::pbf_tag_type kDurationPs = 3;
}  // namespace event
namespace event_name {
constexpr protozero::pbf_tag_type kText = 2;
constexpr protozero::pbf_tag_type kStat = 5;
}  // namespace event_name
constexpr protozero::pbf_tag_type kKey = 1;  // of an entry of a map
constexpr protozero::pbf_tag_type kValue = 2;
constexpr protozero::pbf_tag_type kBytesOfStat = 6;
// HloProto: openxla/xla, xla/service/hlo.proto.
namespace hlo {
constexpr protozero::pbf_tag_type kModule = 1;
constexpr protozero::pbf_tag_type kComputation = 3;
constexpr protozero::pbf_tag_type kInstruction = 2;
constexpr protozero::pbf_tag_type kInstructionName = 1;
constexpr protozero::pbf_tag_type kMetadata = 7;
constexpr protozero::pbf_tag_type kSourceFile = 3;
constexpr protozero::pbf_tag_type kSourceLine = 4;
}  // namespace hlo

using Sources = std::map<std::string, Span>;

std::string text_of(const data_view& view) { return {view.data(), view.size()}; }

/// Kernels have the names of instructions, changed to names of functions.
std::string as_kernel(std::string instruction) {
  std::ranges::replace_if(
      instruction, [](char c) { return c == '.' || c == '-'; }, '_');
  return instruction;
}

void add_instruction(pbf_reader instruction, Sources& sources) {
  std::string name;
  Span where;
  while (instruction.next()) {
    if (instruction.tag() == hlo::kInstructionName) {
      name = text_of(instruction.get_view());
    } else if (instruction.tag() == hlo::kMetadata) {
      pbf_reader metadata = instruction.get_message();
      while (metadata.next()) {
        if (metadata.tag() == hlo::kSourceFile) {
          where.file = text_of(metadata.get_view());
        } else if (metadata.tag() == hlo::kSourceLine) {
          where.line = static_cast<std::uint32_t>(metadata.get_int32());
        } else {
          metadata.skip();
        }
      }
    } else {
      instruction.skip();
    }
  }
  if (!where.file.empty()) sources.try_emplace(as_kernel(std::move(name)), std::move(where));
}

void add_program(const data_view& bytes, Sources& sources) {
  pbf_reader proto(bytes);
  while (proto.next(hlo::kModule)) {
    pbf_reader module = proto.get_message();
    while (module.next(hlo::kComputation)) {
      pbf_reader computation = module.get_message();
      while (computation.next(hlo::kInstruction))
        add_instruction(computation.get_message(), sources);
    }
  }
}

/// The programs are stored as stats of event names.
void add_programs(pbf_reader metadata, Sources& sources) {
  while (metadata.next(plane::kEventNames)) {
    pbf_reader entry = metadata.get_message();
    while (entry.next(kValue)) {
      pbf_reader name = entry.get_message();
      while (name.next(event_name::kStat)) {
        pbf_reader stat = name.get_message();
        while (stat.next(kBytesOfStat)) add_program(stat.get_view(), sources);
      }
    }
  }
}

using Names = std::map<std::int64_t, std::string>;

Names names_of_events(pbf_reader device) {
  Names names;
  while (device.next(plane::kEventNames)) {
    pbf_reader entry = device.get_message();
    std::int64_t id = 0;
    while (entry.next()) {
      if (entry.tag() == kKey) {
        id = entry.get_int64();
      } else if (entry.tag() == kValue) {
        pbf_reader name = entry.get_message();
        while (name.next(event_name::kText)) names[id] = text_of(name.get_view());
      } else {
        entry.skip();
      }
    }
  }
  return names;
}

/// Whether the line has kernels. Events of other lines, for steps and programs, enclose them.
bool has_kernels(const std::string& line) {
  return line.starts_with("Stream #") || line == "XLA Ops";
}

using Times = std::map<std::string, KernelTime>;

void add_line(pbf_reader of_line, const Names& names, Times& times) {
  std::string name;
  std::map<std::int64_t, std::pair<std::int64_t, std::int64_t>> totals;  // count and time, by name
  while (of_line.next()) {
    if (of_line.tag() == line::kName) {
      name = text_of(of_line.get_view());
    } else if (of_line.tag() == line::kEvent) {
      pbf_reader of_event = of_line.get_message();
      std::int64_t id = 0;
      std::int64_t ps = 0;
      while (of_event.next()) {
        if (of_event.tag() == event::kNameId) {
          id = of_event.get_int64();
        } else if (of_event.tag() == event::kDurationPs) {
          ps = of_event.get_int64();
        } else {
          of_event.skip();
        }
      }
      auto& [count, total] = totals[id];
      ++count;
      total += ps;
    } else {
      of_line.skip();
    }
  }
  if (!has_kernels(name)) return;
  for (const auto& [id, total] : totals) {
    const auto found = names.find(id);
    KernelTime& time = times[found == names.end() ? "unnamed" : found->second];
    time.count += total.first;
    time.ps += total.second;
  }
}

}  // namespace

std::vector<KernelTime> kernels_of(std::string_view space) try {
  Sources sources;
  Times times;
  pbf_reader all(data_view(space.data(), space.size()));
  while (all.next(kPlane)) {
    const pbf_reader plane = all.get_message();
    std::string name;
    for (pbf_reader copy = plane; copy.next(plane::kName);) name = text_of(copy.get_view());
    if (name == "/host:metadata") add_programs(plane, sources);
    if (!name.starts_with("/device:")) continue;
    const Names names = names_of_events(plane);
    for (pbf_reader copy = plane; copy.next(plane::kLine);)
      add_line(copy.get_message(), names, times);
  }
  std::vector<KernelTime> result;
  for (auto& [name, time] : times) {
    time.name = name;
    const auto source = sources.find(name);
    if (source != sources.end()) time.where = source->second;
    result.push_back(std::move(time));
  }
  std::ranges::stable_sort(result, std::greater{}, &KernelTime::ps);
  return result;
} catch (const protozero::exception&) {
  return {};  // a plugin may write something else than such a message
}

}  // namespace tessera::profile
