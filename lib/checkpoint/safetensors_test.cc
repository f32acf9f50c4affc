// What is written in the safetensors format.
#include <cstring>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <string>
#include <vector>

#include <tessera/array.h>
#include <tessera/checkpoint.h>

namespace tessera::checkpoint {
namespace {

TEST(Safetensors, HasBf16AsItIs) {
  const std::vector<bfloat16> values = {bfloat16(1.5F), bfloat16(-0.0F), bfloat16(0x1p-130F)};
  const std::string path = ::testing::TempDir() + "bf16.safetensors";
  write_safetensors(path, {{"x", array(values)}});
  std::ifstream in(path, std::ios::binary);
  const std::string file{std::istreambuf_iterator<char>(in), {}};
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), sizeof(header_bytes));
  const std::string header = file.substr(8, header_bytes);
  EXPECT_NE(header.find(R"("x":{"dtype":"BF16","shape":[3],"data_offsets":[0,6]})"),
            std::string::npos)
      << header;
  ASSERT_EQ(file.size(), 8 + header_bytes + 6);
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, file.data() + 8 + header_bytes + 2 * i, sizeof(bits));
    EXPECT_EQ(bits, values[i].bits());
  }
}

}  // namespace
}  // namespace tessera::checkpoint
