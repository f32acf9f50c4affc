// The kernels in recordings of plugins. /device:GPU:0 has the streams, /host:metadata the programs.
#include "profile/kernels.h"

#include <gtest/gtest.h>
#include <protozero/pbf_writer.hpp>

#include "profile/space.h"

namespace tessera::profile {
namespace {

/// A HloProto with one instruction.
std::string program_with(const std::string& instruction, const std::string& file, int line) {
  std::string proto;
  {
    protozero::pbf_writer writer(proto);
    protozero::pbf_writer module(writer, 1);
    protozero::pbf_writer computation(module, 3);
    protozero::pbf_writer written(computation, 2);
    written.add_string(1, instruction);
    protozero::pbf_writer metadata(written, 7);
    metadata.add_string(3, file);
    metadata.add_int32(4, line);
  }
  return proto;
}

Plane gpu_plane() {
  Plane plane{.name = "/device:GPU:0"};
  const std::size_t product = plane.add_kind({.name = "gemm_fusion_dot_7"});
  const std::size_t copy = plane.add_kind({.name = "MemcpyD2H"});
  const std::size_t step = plane.add_kind({.name = "1"});
  plane.lines = {{"Stream #14(Compute)", 14, {{product, 0, 30}, {product, 40, 60}}},
                 {"Stream #15(MemcpyD2H)", 15, {{copy, 60, 65}}},
                 {"Steps", 1, {{step, 0, 100}}}};
  return plane;
}

TEST(Kernels, AreAddedUpByName) {
  Plane programs{.name = "/host:metadata"};
  programs.add_kind(
      {.name = "step(1)",
       .stats = {{"hlo_proto", Bytes{program_with("gemm_fusion_dot.7", "lm.h", 76)}}}});
  Plane second = gpu_plane();
  second.name = "/device:GPU:1";
  const std::vector<KernelTime> kernels =
      kernels_of(to_xspace({.host = "h", .planes = {programs, gpu_plane(), second}}));
  ASSERT_EQ(kernels.size(), 2U);
  EXPECT_EQ(kernels[0].name, "gemm_fusion_dot_7");
  EXPECT_EQ(kernels[0].where, Span("lm.h", 76));
  EXPECT_EQ(kernels[0].count, 4);
  EXPECT_EQ(kernels[0].ps, 100'000);
  EXPECT_EQ(kernels[1].name, "MemcpyD2H");
  EXPECT_EQ(kernels[1].where, Span());
  EXPECT_EQ(kernels[1].ps, 10'000);
}

TEST(Kernels, AreNotReadFromOtherPlanesAndOtherBytes) {
  Plane host = gpu_plane();
  host.name = "/host:CPU";
  EXPECT_TRUE(kernels_of(to_xspace({.host = "h", .planes = {host}})).empty());
  EXPECT_TRUE(kernels_of("").empty());
  EXPECT_TRUE(kernels_of("\x0a\x7fno message").empty());
}

}  // namespace
}  // namespace tessera::profile
