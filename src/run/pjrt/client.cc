#include "run/pjrt/client.h"

#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <numeric>

#include <tessera/error.h>

#include "run/pjrt/abi_plugin.h"
#include "run/pjrt/elements.h"
#include "run/pjrt/find.h"
#include "run/pjrt/messages.h"
#include "run/pjrt/runnable.h"
#include "run/recorder.h"

namespace tessera::run::pjrt {

Client::Client(const ClientSpec& spec, const Span& where)
    : plugin_(spec.path, where), cuda_folder_(find_cuda_folder(spec.path)) {
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
  const NamedValues options(spec.options);
  std::string names;
  for (const auto& [name, value] : spec.options) {
    names += fmt::format("{}{}={}", names.empty() ? "" : ", ", name, value);
  }
  abi::ClientCreate create;
  create.options = options.all().data();
  create.num_options = options.all().size();
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

abi::DeviceDescription* Client::description_of(abi::Device* device) const {
  abi::GetDescription get;
  get.device = device;
  plugin_.call(get);
  return get.description;
}

std::vector<DeviceInfo> Client::devices() const {
  std::vector<DeviceInfo> infos;
  for (abi::Device* device : devices_) {
    DeviceInfo info;
    abi::DeviceDescription* const description = description_of(device);
    abi::DeviceId id;
    id.description = description;
    plugin_.call(id);
    info.id = id.id;
    abi::DeviceKind kind;
    kind.description = description;
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

int Client::compute_capability(abi::Device* device) const {
  abi::DescriptionAttributes all;
  all.object = description_of(device);
  if (!plugin_.has(abi::Function::description_attributes) || plugin_.try_call(all)) return 0;
  for (const abi::NamedValue& each : std::span(all.items, all.num_items)) {
    const bool is_text = each.type == abi::NamedValue::Type::text;
    if (is_text && std::string_view(each.name, each.name_size) == "compute_capability")
      return std::atoi(std::string(each.text, each.value_size).c_str());
  }
  return 0;
}

bool Client::has_tensor_cores() const {
  constexpr int kOldest = 8;
  return platform_ == "cuda" && std::ranges::all_of(devices_, [this](abi::Device* device) {
           return compute_capability(device) >= kOldest;
         });
}

BufferHandle Client::own(abi::Buffer* buffer) const {
  return {buffer, [this](abi::Buffer* dead) {
            abi::BufferDestroy destroy;
            destroy.buffer = dead;
            plugin_.try_call(destroy);
          }};
}

BufferHandle Client::upload(const std::byte* data, std::shared_ptr<const void> owner, DType dtype,
                            const Shape& shape, std::int64_t device) {
  // For a small array, a copy during the call is faster than a later signal that the plugin has
  // read the array.
  constexpr std::int64_t kSmallBytes = 64 << 10;
  const std::int64_t bytes = size_bytes(Type{dtype, shape});
  const bool is_small = bytes <= kSmallBytes;
  const TimedCall timed(calls_,
                        {.kind = DeviceCall::Kind::upload, .bytes = bytes, .first_device = device});
  uploads_.let_go(plugin_);
  abi::BufferFromHost from;
  from.client = client_;
  from.data = data;
  from.type = element_type(dtype);
  from.dims = shape.data();
  from.num_dims = shape.size();
  from.semantics = is_small ? abi::HostSemantics::only_during_call
                            : abi::HostSemantics::until_transfer_completes;
  from.device = devices_[static_cast<std::size_t>(device)];
  plugin_.call(from);
  BufferHandle buffer = own(from.buffer);
  uploads_.add(from.done_with_host_buffer, is_small ? nullptr : std::move(owner));
  return buffer;
}

std::optional<Failure> Client::wait(abi::Buffer* buffer) {
  const TimedCall timed(calls_, {.kind = DeviceCall::Kind::wait});
  abi::BufferReadyEvent ready;
  ready.object = buffer;
  if (std::optional<Failure> failure = plugin_.try_call(ready)) return failure;
  return plugin_.await(ready.value);
}

std::optional<Failure> Client::download(abi::Buffer* buffer, std::size_t rank,
                                        std::span<std::byte> to) {
  // So that a profile tells waiting and copying apart.
  if (calls_.is_on()) {
    if (std::optional<Failure> failure = wait(buffer)) return failure;
  }
  const TimedCall timed(
      calls_, {.kind = DeviceCall::Kind::download, .bytes = static_cast<std::int64_t>(to.size())});
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
  if (std::optional<Failure> failure = plugin_.try_call(copy)) return failure;
  std::optional<Failure> failure = plugin_.await(copy.event);
  uploads_.let_go(plugin_);
  return failure;
}

BufferHandle Client::copy(abi::Buffer* buffer, std::int64_t device) {
  const TimedCall timed(calls_, {.kind = DeviceCall::Kind::copy, .first_device = device});
  abi::BufferCopyToDevice copy;
  copy.buffer = buffer;
  copy.device = devices_[static_cast<std::size_t>(device)];
  plugin_.call(copy);
  return own(copy.copy);
}

void Client::execute(abi::Execute& execute, const std::string& name, std::int64_t first_device) {
  constexpr std::size_t kMostInFlight = 2;
  uploads_.let_go(plugin_);
  const std::lock_guard<std::mutex> lock(mutex_);
  std::deque<std::vector<abi::Event*>>& in_flight = in_flight_[first_device];
  while (in_flight.size() >= kMostInFlight) {
    const TimedCall timed(calls_, {.kind = DeviceCall::Kind::wait, .first_device = first_device});
    // Failures are reported where the results are read.
    for (abi::Event* event : in_flight.front()) plugin_.await(event);
    in_flight.pop_front();
  }
  std::vector<abi::Event*> completed(execute.num_devices, nullptr);
  execute.completed = completed.data();
  const bool is_recorded = calls_.is_on();
  const std::int64_t start_ns = is_recorded ? ns_of(Clock::now()) : 0;
  if (const auto failure = plugin_.try_call(execute)) plugin_.fail(*failure, "program " + name);
  if (is_recorded) {
    calls_.add_execution(plugin_,
                         {.kind = DeviceCall::Kind::execute,
                          .program = name,
                          .first_device = first_device,
                          .num_devices = static_cast<std::int64_t>(execute.num_devices),
                          .start_ns = start_ns,
                          .end_ns = ns_of(Clock::now())},
                         completed);
  }
  in_flight.push_back(std::move(completed));
}

void Client::start_trace() {
  profiler_ = Profiler::start(plugin_);
  calls_.start_trace();
}

DeviceTrace Client::stop_trace() {
  DeviceTrace trace = calls_.stop_trace();
  for (const DeviceInfo& info : devices()) trace.device_kinds.push_back(info.kind);
  const std::unique_ptr<Profiler> profiler = std::move(profiler_);
  if (profiler != nullptr) trace.space = profiler->finish();
  return trace;
}

std::shared_ptr<const Runnable> Client::compile(const DeviceProgram& program) {
  const auto found = static_cast<std::int64_t>(devices_.size());
  const std::int64_t end = program.first_device + program.num_devices;
  if (end > found) {
    throw UserError(
        {.what = program.name + ": the PJRT plugin has too few devices",
         .found = fmt::format("{}, platform {}", found, platform_),
         .wanted = fmt::format("at least {} devices, one for each device of the mesh", end),
         .cure = "use a smaller mesh, or, with a plugin for CPUs, ask for more devices, for "
                 "example pjrt:PATH,cpu_device_count=8"});
  }
  const std::vector<int> ids(device_ids_.begin() + program.first_device, device_ids_.begin() + end);
  const std::string options = compile_options(ids, platform_, cuda_folder_);
  const abi::Program text = abi::program_of(program.text);
  abi::Compile compile;
  compile.client = client_;
  compile.program = &text;
  compile.options = options.data();
  compile.options_size = options.size();
  if (const auto failure = plugin_.try_call(compile)) {
    plugin_.fail(*failure, "compiling " + program.name);
  }
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
