// Writes event files for TensorBoard: TFRecord files whose records are tensorflow.Event messages.
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <protozero/pbf_writer.hpp>
#include <unistd.h>

#include <tessera/checkpoint.h>
#include <tessera/error.h>

#include "data/crc32c.h"
#include "data/little_endian.h"

namespace tessera {

namespace {

using Clock = std::chrono::system_clock;

constexpr std::chrono::seconds kBetweenFlushes(1);

// The protobuf fields of Event, of Summary, and of Summary.Value.
constexpr protozero::pbf_tag_type kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5;
constexpr protozero::pbf_tag_type kValue = 1;
constexpr protozero::pbf_tag_type kTag = 1, kSimpleValue = 2;

/// CRC-32C, masked as in TFRecord: the CRC of data that contains its own CRC would be weak.
std::uint32_t masked_crc(const std::string& bytes) {
  const std::uint32_t crc =
      data::crc32c({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
  return (crc >> 15U | crc << 17U) + 0xA282EAD8;
}

double seconds_of(Clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

/// A file name that no other run has. TensorBoard finds event files by `tfevents` in their names.
std::string new_name() {
  static std::atomic<int> count = 0;
  std::array<char, 256> host = {};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  const std::string seconds = std::to_string(static_cast<std::int64_t>(seconds_of(Clock::now())));
  return "events.out.tfevents." + seconds + "." + host.data() + "." + std::to_string(getpid()) +
         "." + std::to_string(count++);
}

}  // namespace

struct SummaryWriter::State {
  std::string path;
  std::ofstream file;
  Clock::time_point flushed = {};

  void check() const {
    if (file) return;
    throw RuntimeFault("cannot write " + path + ": " + std::strerror(errno));
  }
  void write(const std::string& event) {
    const std::string length = data::little_endian(event.size(), 8);
    errno = 0;
    file << length << data::little_endian(masked_crc(length), 4) << event
         << data::little_endian(masked_crc(event), 4);
    check();
    if (Clock::now() >= flushed + kBetweenFlushes) flush();
  }
  void flush() {
    errno = 0;
    file.flush();
    check();
    flushed = Clock::now();
  }
};

SummaryWriter::SummaryWriter(const std::string& folder) : state_(std::make_unique<State>()) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw RuntimeFault("cannot make the folder " + folder + ": " + error.message());
  state_->path = folder + "/" + new_name();
  state_->file.open(state_->path, std::ios::binary);
  state_->check();
  std::string event;
  protozero::pbf_writer writer(event);
  writer.add_double(kWallTime, seconds_of(Clock::now()));
  writer.add_string(kFileVersion, "brain.Event:2");
  state_->write(event);
}

SummaryWriter::SummaryWriter(SummaryWriter&& other) noexcept = default;
SummaryWriter& SummaryWriter::operator=(SummaryWriter&& other) noexcept = default;
SummaryWriter::~SummaryWriter() = default;

void SummaryWriter::scalar(const std::string& tag, double value, std::int64_t step) {
  std::string event;
  protozero::pbf_writer writer(event);
  writer.add_double(kWallTime, seconds_of(Clock::now()));
  writer.add_int64(kStep, step);
  {
    protozero::pbf_writer summary(writer, kSummary);
    protozero::pbf_writer one(summary, kValue);
    one.add_string(kTag, tag);
    one.add_float(kSimpleValue, static_cast<float>(value));
  }
  state_->write(event);
}

void SummaryWriter::flush() { state_->flush(); }

const std::string& SummaryWriter::path() const { return state_->path; }

}  // namespace tessera
