// Profiles of what the devices of a plugin run.
#include <filesystem>
#include <set>

#include "tests/pjrt/plugin.h"
#include "tests/programs/profile_reader.h"

namespace tessera::testing {
namespace {

namespace fs = std::filesystem;

const std::string kTrain =
    "train lm --mesh data=2 --vocab 50 --seq 12 --d-model 32 --heads 4 --layers 1 --d-ff 48 "
    "--batch 4 --steps 8 --profile p ";

class PjrtProfiles : public PjrtCommands {
 protected:
  /// The file for TensorBoard that the run has written.
  std::string written() const {
    for (const auto& entry : fs::recursive_directory_iterator(folder() / "p")) {
      if (entry.path().extension() == ".pb") return bytes_of_file(entry.path().string());
    }
    return "";
  }
};

TEST_F(PjrtProfiles, ShowTheCallsAsTheHostSeesThem) {
  const CommandOutcome outcome = run(kTrain + "--engine " + test_plugin());
  ASSERT_EQ(outcome.exit_code, 0) << outcome.stderr_text;
  for (const char* row : {" on the devices", "starting uploads", "downloads", "waiting for"}) {
    EXPECT_NE(outcome.stdout_text.find(row), std::string::npos) << row << outcome.stdout_text;
  }
  EXPECT_EQ(outcome.stdout_text.find("no task to run"), std::string::npos);
  const std::string bytes = written();
  const SpaceReader space(bytes);
  // Five steps are traced, on both devices of the mesh.
  for (const char* device : {"/device:TPU:0", "/device:TPU:1"}) {
    SCOPED_TRACE(device);
    const ReadPlane& plane = space.plane(device);
    EXPECT_EQ(plane.events("Steps").size(), 5U);
    const std::vector<ReadEvent> programs = plane.events("XLA Modules");
    EXPECT_GE(programs.size(), 5U);
    std::int64_t end = 0;
    for (const ReadEvent& event : programs) {
      EXPECT_GE(event.start_ps, end);
      EXPECT_GT(event.length_ps, 0);
      end = event.start_ps + event.length_ps;
    }
  }
  EXPECT_EQ(space.plane("/device:TPU:2").events("XLA Modules").size(), 0U);
  const ReadPlane& host = space.plane("/host:CPU");
  std::set<std::string> names;
  for (const ReadEvent& event : host.events("calls of the plugin, thread 1")) {
    names.insert(host.kinds.at(event.kind).name);
  }
  EXPECT_EQ(names.count("upload"), 1U);
  EXPECT_EQ(names.count("download"), 1U);
}

TEST_F(PjrtProfiles, HaveWhatTheProfilerOfThePluginRecorded) {
  const FaultyPlugin plugin("profiler");
  const CommandOutcome outcome = run(kTrain + "--engine " + FaultyPlugin::engine());
  ASSERT_EQ(outcome.exit_code, 0) << outcome.stderr_text;
  const std::string bytes = written();
  const SpaceReader space(bytes);
  const ReadPlane& device = space.plane("/device:GPU:0");
  ASSERT_EQ(device.lines.size(), 1U);
  EXPECT_EQ(device.lines[0].name, "Stream #1");
  EXPECT_GT(space.plane("/host:CPU").events("calls of the plugin, thread 1").size(), 5U);
  for (const ReadPlane& plane : space.planes()) EXPECT_NE(plane.name, "/device:TPU:0");
}

}  // namespace
}  // namespace tessera::testing
