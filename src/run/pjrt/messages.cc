#include "run/pjrt/messages.h"

#include <cstdint>

namespace tessera::run::pjrt {

namespace {

/// A message in the wire format of protocol buffers.
class Message {
 public:
  void add(int field, std::uint64_t value) {
    add_number(static_cast<std::uint64_t>(field) << 3);
    add_number(value);
  }
  void add(int field, std::string_view bytes) {
    constexpr std::uint64_t kLengthDelimited = 2;
    add_number((static_cast<std::uint64_t>(field) << 3) | kLengthDelimited);
    add_number(bytes.size());
    bytes_ += bytes;
  }
  void add(int field, const Message& message) { add(field, message.bytes_); }
  void add_number(std::uint64_t value) {
    constexpr std::uint64_t kMore = 128;
    for (; value >= kMore; value /= kMore) bytes_ += static_cast<char>(value % kMore + kMore);
    bytes_ += static_cast<char>(value);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// Names and numbers of the fields: openxla/xla, xla/pjrt/proto/compile_options.proto.
constexpr int kBuildOptions = 3;
constexpr int kOverrides = 7;
namespace build {
constexpr int kDeviceOrdinal = 1;
constexpr int kNumReplicas = 4;
constexpr int kNumPartitions = 5;
constexpr int kDeviceAssignment = 9;
}  // namespace build
namespace assignment {
constexpr int kReplicaCount = 1;
constexpr int kComputationCount = 2;
constexpr int kComputationDevices = 3;
constexpr int kReplicaIds = 1;
}  // namespace assignment
namespace entry {
constexpr int kKey = 1;
constexpr int kValue = 2;
constexpr int kText = 1;
constexpr int kBool = 2;
constexpr int kInt = 3;
}  // namespace entry
// openxla/xla, third_party/tsl/tsl/profiler/protobuf/profiler_options.proto.
namespace profile {
constexpr int kVersion = 5;
constexpr int kDeviceType = 6;
constexpr int kHostLevel = 2;
constexpr int kDeviceLevel = 3;
constexpr int kPrograms = 7;
}  // namespace profile

Message assignment_of(const std::vector<int>& device_ids) {
  Message ids;
  for (const int id : device_ids) ids.add_number(static_cast<std::uint64_t>(id));
  Message computation;
  computation.add(assignment::kReplicaIds, ids);
  Message message;
  message.add(assignment::kReplicaCount, device_ids.size());
  message.add(assignment::kComputationCount, std::uint64_t{1});
  message.add(assignment::kComputationDevices, computation);
  return message;
}

template <typename Value>
Message override_of(std::string_view key, int kind, const Value& value) {
  Message held;
  held.add(kind, value);
  Message message;
  message.add(entry::kKey, key);
  message.add(entry::kValue, held);
  return message;
}

}  // namespace

std::string compile_options(const std::vector<int>& device_ids, std::string_view platform,
                            const std::string& cuda_folder) {
  Message build;
  build.add(build::kDeviceOrdinal, ~std::uint64_t{0});  // -1: no device is preferred
  build.add(build::kNumReplicas, device_ids.size());
  build.add(build::kNumPartitions, std::uint64_t{1});
  build.add(build::kDeviceAssignment, assignment_of(device_ids));
  Message options;
  options.add(kBuildOptions, build);
  if (platform == "cpu") {
    // Otherwise maxima lose NaN.
    options.add(kOverrides,
                override_of("xla_cpu_enable_fast_min_max", entry::kBool, std::uint64_t{0}));
    // Many virtual devices share few cores: the default of 40 s ends the process.
    constexpr std::uint64_t kSeconds = 600;
    options.add(kOverrides, override_of("xla_cpu_collective_call_terminate_timeout_seconds",
                                        entry::kInt, kSeconds));
  }
  if (!cuda_folder.empty()) {
    options.add(kOverrides,
                override_of("xla_gpu_cuda_data_dir", entry::kText, std::string_view(cuda_folder)));
  }
  return options.bytes();
}

std::string profile_options() {
  Message options;
  options.add(profile::kVersion, std::uint64_t{1});
  options.add(profile::kDeviceType, std::uint64_t{0});  // any
  options.add(profile::kHostLevel, std::uint64_t{0});   // Tessera writes the rows of the host
  options.add(profile::kDeviceLevel, std::uint64_t{1});
  options.add(profile::kPrograms, std::uint64_t{1});
  return options.bytes();
}

}  // namespace tessera::run::pjrt
