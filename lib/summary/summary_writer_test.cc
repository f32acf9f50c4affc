// Parses written event files and checks their framing, checksums and message fields.
#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <protozero/pbf_reader.hpp>

#include <tessera/checkpoint.h>
#include <tessera/error.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

struct Event {
  double wall_time = 0;
  std::int64_t step = 0;
  std::string version, tag;
  float value = 0;
};

template <typename T>
T number_at(const std::string& bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

Event parse(const std::string& message) {
  Event event;
  for (protozero::pbf_reader fields(message); fields.next();) {
    if (fields.tag() == 1) event.wall_time = fields.get_double();
    if (fields.tag() == 2) event.step = fields.get_int64();
    if (fields.tag() == 3) event.version = fields.get_string();
    if (fields.tag() != 5) continue;
    protozero::pbf_reader summary = fields.get_message();
    EXPECT_TRUE(summary.next(1));
    protozero::pbf_reader value = summary.get_message();
    EXPECT_TRUE(value.next(1));
    event.tag = value.get_string();
    EXPECT_TRUE(value.next(2));
    event.value = value.get_float();
  }
  return event;
}

/// A message with the masked checksums of its length and of its bytes.
struct Record {
  std::uint32_t length_crc, crc;
  std::string message;
};

std::vector<Record> records_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  std::vector<Record> records;
  std::size_t at = 0;
  while (at < bytes.size()) {
    const auto length = static_cast<std::size_t>(number_at<std::uint64_t>(bytes, at));
    records.push_back({.length_crc = number_at<std::uint32_t>(bytes, at + 8),
                       .crc = number_at<std::uint32_t>(bytes, at + 12 + length),
                       .message = bytes.substr(at + 12, length)});
    at += 16 + length;
  }
  EXPECT_EQ(at, bytes.size());
  return records;
}

/// The masked CRC-32C, computed bit by bit as RFC 3720 defines it.
std::uint32_t masked(const std::string& bytes) {
  std::uint32_t crc = 0xFFFFFFFF;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1U) ^ ((crc & 1U) * 0x82F63B78U);
  }
  crc = ~crc;
  return ((crc >> 15U) | (crc << 17U)) + 0xA282EAD8U;
}

fs::path fresh_folder(const std::string& name) {
  const fs::path folder = fs::path(::testing::TempDir()) / name;
  fs::remove_all(folder);
  return folder;
}

TEST(SummaryWriter, WritesEventsThatTensorBoardReads) {
  // The standard check value of a CRC is its value for these digits; CRC-32C has 0xE3069283.
  ASSERT_EQ(masked("123456789"), ((0xE3069283U >> 15U) | (0xE3069283U << 17U)) + 0xA282EAD8U);
  const fs::path folder = fresh_folder("tessera_summary") / "run";
  std::string path;
  {
    SummaryWriter writer(folder.string());
    path = writer.path();
    writer.scalar("train/loss", 2.5, 0);
    writer.scalar("train/loss", 0.1, 300);
    SummaryWriter moved = std::move(writer);
    moved.scalar("accuracy", 1, std::int64_t{1} << 40);
  }
  EXPECT_NE(path.find("/run/events.out.tfevents."), std::string::npos) << path;
  const std::vector<Record> records = records_of(path);
  ASSERT_EQ(records.size(), 4U);
  for (const Record& record : records) {
    std::string length(8, '\0');
    const std::uint64_t size = record.message.size();
    std::memcpy(length.data(), &size, 8);
    EXPECT_EQ(record.length_crc, masked(length));
    EXPECT_EQ(record.crc, masked(record.message));
    EXPECT_GT(parse(record.message).wall_time, 1.6e9);
  }
  EXPECT_EQ(parse(records[0].message).version, "brain.Event:2");
  EXPECT_EQ(parse(records[1].message).tag, "train/loss");
  EXPECT_EQ(parse(records[1].message).value, 2.5F);
  EXPECT_EQ(parse(records[1].message).step, 0);
  EXPECT_EQ(parse(records[2].message).value, 0.1F);
  EXPECT_EQ(parse(records[2].message).step, 300);
  EXPECT_EQ(parse(records[3].message).tag, "accuracy");
  EXPECT_EQ(parse(records[3].message).step, std::int64_t{1} << 40);
}

TEST(SummaryWriter, EachRunHasAFileOfItsOwn) {
  const fs::path folder = fresh_folder("tessera_summary_two");
  const SummaryWriter first(folder.string());
  SummaryWriter second(folder.string());
  EXPECT_NE(first.path(), second.path());
  second.scalar("loss", 1, 0);
  second.flush();
  EXPECT_EQ(records_of(second.path()).size(), 2U);
  EXPECT_EQ(records_of(first.path()).size(), 1U);
}

TEST(SummaryWriter, TellsWhatItCannotWrite) {
  const fs::path folder = fresh_folder("tessera_summary_taken");
  std::ofstream(folder).put('x');
  try {
    const SummaryWriter writer(folder.string());
    FAIL() << "it was made";
  } catch (const RuntimeFault& fault) {
    EXPECT_EQ(std::string(fault.what()),
              "cannot make the folder " + folder.string() + ": Not a directory");
  }
}

}  // namespace
}  // namespace tessera
