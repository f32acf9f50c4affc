#include "run/pjrt/options.h"

#include <algorithm>
#include <fmt/format.h>
#include <optional>

#include <tessera/error.h>

#include "base/read_number.h"

namespace tessera::run::pjrt {

namespace {

/// Option names of the clients for CPUs and for NVIDIA GPUs. Other options are passed on unchecked.
const std::vector<std::string>& known_options() {
  static const auto* const names =
      new std::vector<std::string>{"abort_collectives_on_failure",
                                   "allocator",
                                   "collective_memory_size",
                                   "cpu_device_count",
                                   "enable_mock_nccl",
                                   "max_inflight_computations",
                                   "memory_fraction",
                                   "mock_gpu_topology",
                                   "node_id",
                                   "num_nodes",
                                   "partition_index",
                                   "platform_name",
                                   "preallocate",
                                   "process_id",
                                   "should_stage_host_to_device_transfers",
                                   "use_tfrt_gpu_client",
                                   "visible_devices"};
  return *names;
}

void check_names(const ClientSpec& spec, const Span& where) {
  const std::vector<std::string>& known = known_options();
  for (const auto& [name, value] : spec.options) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string meant = nearest(name, known);
    if (meant.empty()) continue;
    throw UserError({.what = "set_engine: the PJRT plugin has no option of this name",
                     .where = where,
                     .found = fmt::format("{}={}", name, value),
                     .wanted = "the name of an option, such as " + meant,
                     .cure = fmt::format("write {}={}", meant, value)});
  }
}

/// The next comma outside of brackets, or the end.
std::size_t end_of_part(std::string_view text, std::size_t begin) {
  int depth = 0;
  std::size_t at = begin;
  for (; at < text.size() && (text[at] != ',' || depth > 0); ++at) {
    if (text[at] == '[') ++depth;
    if (text[at] == ']') --depth;
  }
  return at;
}

template <typename Number>
bool is_whole_text(std::string_view text, Number& number) {
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const auto [stop, error] = read_number(begin, end, number);
  return stop == end && error == std::errc();
}

/// The numbers of `[0,1]`; nullopt for other text.
std::optional<std::vector<std::int64_t>> list_of(std::string_view text) {
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') return std::nullopt;
  text = text.substr(1, text.size() - 2);
  std::vector<std::int64_t> numbers;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    if (!is_whole_text(text.substr(begin, end - begin), numbers.emplace_back())) {
      return std::nullopt;
    }
    begin = end + 1;
  }
  return numbers;
}

}  // namespace

ClientSpec parse_spec(std::string_view text, const Span& where) {
  ClientSpec spec;
  std::size_t end = std::min(text.find(','), text.size());
  spec.path = text.substr(0, end);
  bool is_valid = !spec.path.empty();
  while (end < text.size()) {
    const std::size_t begin = end + 1;
    end = end_of_part(text, begin);
    const std::string_view option = text.substr(begin, end - begin);
    const std::size_t equals = option.find('=');
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == option.size()) {
      is_valid = false;
      continue;
    }
    spec.options.emplace(option.substr(0, equals), option.substr(equals + 1));
  }
  if (!is_valid) {
    throw UserError({.what = "set_engine: the engine pjrt needs the path of a plugin",
                     .where = where,
                     .found = fmt::format("pjrt:{}", text),
                     .wanted = "pjrt:PATH or pjrt:PATH,OPTION=VALUE",
                     .cure = "write for example pjrt:/opt/pjrt_plugin.so,cpu_device_count=8; pjrt "
                             "alone uses the value of TESSERA_PJRT_PLUGIN"});
  }
  check_names(spec, where);
  return spec;
}

NamedValues::NamedValues(const std::map<std::string, std::string>& options) {
  using Type = abi::NamedValue::Type;
  for (const auto& [name, value] : options) {
    abi::NamedValue named;
    named.struct_size = sizeof(named);
    named.name = name.data();
    named.name_size = name.size();
    named.value_size = 1;
    if (value == "true" || value == "false") {
      named.type = Type::boolean;
      named.boolean = value == "true";
    } else if (std::optional<std::vector<std::int64_t>> list = list_of(value)) {
      named.type = Type::int64_list;
      named.int64_list = lists_.emplace_back(std::move(*list)).data();
      named.value_size = lists_.back().size();
    } else if (is_whole_text(value, named.int64)) {
      named.type = Type::int64;
    } else if (double number = 0; is_whole_text(value, number)) {
      named.type = Type::float32;
      named.float32 = static_cast<float>(number);
    } else {
      named.type = Type::text;
      named.text = value.data();
      named.value_size = value.size();
    }
    values_.push_back(named);
  }
}

}  // namespace tessera::run::pjrt
