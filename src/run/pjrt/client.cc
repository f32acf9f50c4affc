#include "run/pjrt/client.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <numeric>

#include <tessera/error.h>

#include "run/pjrt/elements.h"
#include "run/pjrt/messages.h"
#include "run/pjrt/runnable.h"

namespace tessera::run::pjrt {

namespace {

/// A whole number, `true`, `false`, a number with a point, or else a text.
abi::NamedValue named_value(const std::string& name, const std::string& value) {
  abi::NamedValue named;
  named.struct_size = sizeof(named);
  named.name = name.data();
  named.name_size = name.size();
  named.value_size = 1;
  const char* const end = value.data() + value.size();
  std::int64_t whole = 0;
  float number = 0;
  if (value == "true" || value == "false") {
    named.type = abi::NamedValue::Type::boolean;
    named.boolean = value == "true";
  } else if (std::from_chars(value.data(), end, whole).ptr == end) {
    named.type = abi::NamedValue::Type::int64;
    named.int64 = whole;
  } else if (std::from_chars(value.data(), end, number).ptr == end) {
    named.type = abi::NamedValue::Type::float32;
    named.float32 = number;
  } else {
    named.type = abi::NamedValue::Type::text;
    named.text = value.data();
    named.value_size = value.size();
  }
  return named;
}

}  // namespace

ClientSpec parse_spec(std::string_view text, const Span& where) {
  ClientSpec spec;
  std::size_t end = std::min(text.find(','), text.size());
  spec.path = text.substr(0, end);
  bool is_valid = !spec.path.empty();
  while (end < text.size()) {
    const std::size_t begin = end + 1;
    end = std::min(text.find(',', begin), text.size());
    const std::string_view option = text.substr(begin, end - begin);
    const std::size_t equals = option.find('=');
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == option.size()) {
      is_valid = false;
      continue;
    }
    spec.options.emplace(option.substr(0, equals), option.substr(equals + 1));
  }
  if (is_valid) return spec;
  throw UserError({.what = "set_engine: the engine pjrt needs the path of a plugin",
                   .where = where,
                   .found = fmt::format("pjrt:{}", text),
                   .wanted = "pjrt:PATH or pjrt:PATH,OPTION=VALUE",
                   .cure = "write for example pjrt:/opt/pjrt_plugin.so,cpu_device_count=8"});
}

Client::Client(const ClientSpec& spec, const Span& where) : plugin_(spec.path, where) {
  create(spec, where);
  abi::PlatformName name;
  name.client = client_;
  plugin_.call(name);
  platform_.assign(name.text, name.text_size);
  abi::AddressableDevices all;
  all.client = client_;
  plugin_.call(all);
  devices_.assign(all.devices, all.devices + all.num_devices);
  for (const DeviceInfo& info : devices()) device_ids_.push_back(info.id);
}

void Client::create(const ClientSpec& spec, const Span& where) {
  std::vector<abi::NamedValue> options;
  std::string names;
  for (const auto& [name, value] : spec.options) {
    options.push_back(named_value(name, value));
    names += fmt::format("{}{}={}", names.empty() ? "" : ", ", name, value);
  }
  abi::ClientCreate create;
  create.options = options.data();
  create.num_options = options.size();
  if (const std::optional<Failure> failure = plugin_.try_call(create)) {
    throw UserError(
        {.what = "set_engine: the PJRT plugin has no devices for this process",
         .where = where,
         .found = fmt::format("{} (code {})", failure->text, failure->code),
         .wanted = "devices that the plugin can use, and options that it knows",
         .cure = fmt::format("check the driver and the devices that {} needs{}", spec.path,
                             names.empty() ? "" : ", and these options: " + names)});
  }
  client_ = create.client;
}

BackendInfo Client::info() const {
  abi::PlatformVersion version;
  version.client = client_;
  plugin_.call(version);
  return {.platform_version = {version.text, version.text_size},
          .interface_version = plugin_.version(),
          .devices = devices()};
}

std::vector<DeviceInfo> Client::devices() const {
  std::vector<DeviceInfo> infos;
  for (abi::Device* device : devices_) {
    DeviceInfo info;
    abi::GetDescription get;
    get.device = device;
    plugin_.call(get);
    abi::DeviceId id;
    id.description = get.description;
    plugin_.call(id);
    info.id = id.id;
    abi::DeviceKind kind;
    kind.description = get.description;
    plugin_.call(kind);
    info.kind.assign(kind.text, kind.text_size);
    abi::DeviceMemory memory;
    memory.device = device;
    if (!plugin_.try_call(memory)) {  // CPU plugins do not have it
      info.bytes_in_use = memory.bytes_in_use;
      if (memory.bytes_limit.is_set) info.bytes_limit = memory.bytes_limit.value;
    }
    infos.push_back(std::move(info));
  }
  return infos;
}

BufferHandle Client::own(abi::Buffer* buffer) const {
  return {buffer, [this](abi::Buffer* dead) {
            abi::BufferDestroy destroy;
            destroy.buffer = dead;
            plugin_.try_call(destroy);
          }};
}

BufferHandle Client::upload(const std::byte* data, DType dtype, const Shape& shape,
                            std::int64_t device) const {
  abi::BufferFromHost from;
  from.client = client_;
  from.data = data;
  from.type = element_type(dtype);
  from.dims = shape.data();
  from.num_dims = shape.size();
  from.semantics = abi::HostSemantics::until_transfer_completes;
  from.device = devices_[static_cast<std::size_t>(device)];
  plugin_.call(from);
  BufferHandle buffer = own(from.buffer);
  if (const auto failure = plugin_.await(from.done_with_host_buffer)) plugin_.fail(*failure);
  return buffer;
}

void Client::download(abi::Buffer* buffer, std::size_t rank, std::span<std::byte> to) const {
  std::vector<std::int64_t> minor_to_major(rank);
  std::iota(minor_to_major.rbegin(), minor_to_major.rend(), std::int64_t{0});
  abi::MemoryLayout layout;
  layout.struct_size = sizeof(layout);
  layout.tiled.struct_size = sizeof(layout.tiled);
  layout.tiled.minor_to_major = minor_to_major.data();
  layout.tiled.num_dims = rank;
  abi::BufferToHost copy;
  copy.buffer = buffer;
  copy.layout = &layout;
  copy.data = to.data();
  copy.data_size = to.size();
  plugin_.call(copy);
  if (const auto failure = plugin_.await(copy.event)) plugin_.fail(*failure);
}

BufferHandle Client::copy(abi::Buffer* buffer, std::int64_t device) const {
  abi::BufferCopyToDevice copy;
  copy.buffer = buffer;
  copy.device = devices_[static_cast<std::size_t>(device)];
  plugin_.call(copy);
  return own(copy.copy);
}

void Client::execute(abi::Execute& execute, std::int64_t first_device) {
  constexpr std::size_t kMostInFlight = 2;
  const std::lock_guard<std::mutex> lock(mutex_);
  std::deque<std::vector<abi::Event*>>& in_flight = in_flight_[first_device];
  while (in_flight.size() >= kMostInFlight) {
    // What failed is reported where its results are read.
    for (abi::Event* event : in_flight.front()) plugin_.await(event);
    in_flight.pop_front();
  }
  std::vector<abi::Event*> completed(execute.num_devices, nullptr);
  execute.completed = completed.data();
  plugin_.call(execute);
  in_flight.push_back(std::move(completed));
}

std::shared_ptr<const Runnable> Client::compile(const DeviceProgram& program) {
  const auto found = static_cast<std::int64_t>(devices_.size());
  const std::int64_t end = program.first_device + program.num_devices;
  if (end > found) {
    throw UserError({.what = program.name + ": the PJRT plugin has too few devices",
                     .found = fmt::format("{}, platform {}", found, platform_),
                     .wanted = fmt::format("at least {} devices, one for each of the mesh", end),
                     .cure = "use a smaller mesh; a plugin for CPUs makes as many devices as its "
                             "option says, for example pjrt:PATH,cpu_device_count=8"});
  }
  const std::vector<int> ids(device_ids_.begin() + program.first_device, device_ids_.begin() + end);
  const std::string options = compile_options(ids, platform_);
  abi::Program text;
  text.struct_size = sizeof(text);
  text.code = program.text.data();
  text.code_size = program.text.size();
  constexpr std::string_view kFormat = "mlir";
  text.format = kFormat.data();
  text.format_size = kFormat.size();
  abi::Compile compile;
  compile.client = client_;
  compile.program = &text;
  compile.options = options.data();
  compile.options_size = options.size();
  plugin_.call(compile);
  return std::make_shared<PjrtRunnable>(*this, program, compile.loaded);
}

std::shared_ptr<const Runnable> Client::transfer(const DevicePort& port) {
  return std::make_shared<PjrtTransfer>(*this, port);
}

Client& client_of(const ClientSpec& spec, const Span& where) {
  static std::mutex mutex;
  static auto* const clients = new std::map<std::string, Client*>;
  std::string key = spec.path;
  for (const auto& [name, value] : spec.options) key += "," + name + "=" + value;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto known = clients->find(key);
  if (known != clients->end()) return *known->second;
  auto client = std::make_unique<Client>(spec, where);
  return *clients->emplace(key, client.release()).first->second;
}

}  // namespace tessera::run::pjrt
