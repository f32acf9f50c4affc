// `tessera checkpoint ls|verify|convert`.

#include <cstdio>
#include <filesystem>
#include <memory>

#include <tessera/checkpoint.h>
#include <tessera/error.h>

#include "tools/cli/command.h"
#include "tools/cli/streams.h"
#include "tools/tessera/commands.h"
#include "tools/tessera/flags.h"
#include "tools/tessera/report.h"

namespace tessera::cli {

namespace {

namespace fs = std::filesystem;

struct CheckpointFlags {
  std::string folder;
  std::string target;
  std::string format = "safetensors";
  std::string subtree;
};

/// If `folder` is a checkpoint, that checkpoint; if it is the folder of a run, all checkpoints of
/// the run. Throws UserError if there is none.
std::vector<std::string> checkpoints_of(const std::string& command, const std::string& folder) {
  if (folder.empty()) {
    throw UserError({.what = "checkpoint " + command + ": the folder is missing",
                     .found = "no folder",
                     .wanted = "a checkpoint, or the folder of a run",
                     .cure = "write for example `tessera checkpoint " + command + " runs/lm`"});
  }
  if (checkpoint::is_checkpoint(folder)) return {folder};
  std::vector<std::string> paths;
  for (const std::int64_t step : checkpoint::steps_in(folder)) {
    paths.push_back(checkpoint::step_path(folder, step));
  }
  if (!paths.empty()) return paths;
  throw UserError({.what = "checkpoint " + command + ": there is no checkpoint",
                   .found = fs::exists(folder) ? folder + " without one" : "no " + folder,
                   .wanted = "a checkpoint, or the folder of a run",
                   .cure = "give the folder that --checkpoint wrote to"});
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4f", value);
  return text;
}

void list_steps(const std::vector<std::string>& paths) {
  std::vector<Row> rows = {{"step", "loss", "arrays", "files", "bytes", "folder"}};
  for (const std::string& path : paths) {
    try {
      const checkpoint::CheckpointInfo info = checkpoint::read_info(path);
      rows.push_back({std::to_string(info.step), info.metric ? number(*info.metric) : "",
                      std::to_string(info.arrays.size()), std::to_string(info.files.size()),
                      std::to_string(info.bytes), path});
    } catch (const UserError& error) {
      rows.push_back({"damaged", "", "", "", "", error.mistake().found});
    }
  }
  print(table(rows));
}

void list_arrays(const std::string& path) {
  const checkpoint::CheckpointInfo info = checkpoint::read_info(path);
  std::vector<Row> rows = {{"array", "type", "tiles"}};
  for (const checkpoint::SavedArray& array : info.arrays) {
    rows.push_back({array.name, to_string(array.type), std::to_string(array.num_tiles)});
  }
  print(table(rows));
  print("step " + std::to_string(info.step) + ", " + std::to_string(info.bytes) + " bytes in " +
        std::to_string(info.files.size()) + " files\n");
  for (const auto& [name, value] : info.metadata) {
    print(name + ": " + value + "\n");
  }
}

void list(const CheckpointFlags& flags) {
  const std::vector<std::string> paths = checkpoints_of("ls", flags.folder);
  if (checkpoint::is_checkpoint(flags.folder)) return list_arrays(flags.folder);
  list_steps(paths);
}

void verify(const CheckpointFlags& flags) {
  std::vector<std::string> problems;
  for (const std::string& path : checkpoints_of("verify", flags.folder)) {
    const std::vector<std::string> found = checkpoint::verify(path);
    print(path + (found.empty() ? "  intact\n" : "  damaged\n"));
    for (const std::string& problem : found) print("  " + problem + "\n");
    problems.insert(problems.end(), found.begin(), found.end());
  }
  flush_output();
  if (problems.empty()) return;
  throw UserError({.what = "checkpoint verify: damage was found",
                   .found = problems.size() == 1 ? problems[0]
                                                 : std::to_string(problems.size()) +
                                                       " problems, the first: " + problems[0],
                   .wanted = "the bytes that were saved",
                   .cure = "remove what is damaged, and resume from an intact step"});
}

checkpoint::ExportFormat format_named(const std::string& name) {
  using checkpoint::ExportFormat;
  if (name == "orbax") return ExportFormat::orbax;
  if (name == "npz") return ExportFormat::npz;
  if (name == "torch") return ExportFormat::torch;
  return name == "msgpack" ? ExportFormat::msgpack : ExportFormat::safetensors;
}

void convert(const CheckpointFlags& flags) {
  const std::vector<std::string> paths = checkpoints_of("convert", flags.folder);
  if (flags.target.empty()) {
    throw UserError(
        {.what = "checkpoint convert: the folder to write is missing",
         .found = flags.folder + " alone",
         .wanted = "a checkpoint and a new folder",
         .cure = "write for example `tessera checkpoint convert " + flags.folder + " exported`"});
  }
  // If the folder is that of a run, export its last checkpoint.
  checkpoint::export_checkpoint(paths.back(), flags.target,
                                {.format = format_named(flags.format), .subtree = flags.subtree},
                                std::source_location());
  print(paths.back() + " -> " + flags.target + "\n");
}

Command* add(Command& command, const std::shared_ptr<CheckpointFlags>& flags, const char* name,
             const char* help, void (*run)(const CheckpointFlags&)) {
  Command* sub = command.add_subcommand(name, help);
  sub->add_option("DIR", flags->folder, "a checkpoint, or the folder of a run");
  sub->callback([flags, run] { run(*flags); });
  return sub;
}

}  // namespace

void add_checkpoint(Command& app) {
  Command* command = app.add_subcommand("checkpoint", "inspect and convert checkpoints");
  command->require_subcommand(1);
  auto flags = std::make_shared<CheckpointFlags>();
  add(*command, flags, "ls", "list the steps of a run, or the arrays of a checkpoint", list);
  add(*command, flags, "verify", "read every byte and compare checksums", verify);
  Command* to_convert =
      add(*command, flags, "convert",
          "write a checkpoint, or the last one of a run, in another format", convert);
  to_convert->add_option("OUT", flags->target, "a folder that does not exist yet");
  add_choice(*to_convert, flags->format, "--to",
             {"safetensors", "orbax", "npz", "torch", "msgpack"},
             "whole arrays in safetensors files with an index, a folder that Orbax can restore, or "
             "a file for np.load, torch.load or Flax");
  to_convert->add_option(
      "--subtree", flags->subtree,
      "convert only the arrays below this path, or the one at it, for example params");
}

}  // namespace tessera::cli
