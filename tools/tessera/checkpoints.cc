#include "checkpoints.h"

#include <tessera/error.h>

namespace tessera::cli {

using nlohmann::json;

Checkpoints::Checkpoints(const TrainFlags& flags, std::string name, const json& config)
    : flags_(flags), metadata_{{"model", std::move(name)}, {"config", config.dump()}} {
  if (flags.checkpoint.empty()) return;
  const std::optional<std::int64_t> latest = checkpoint::latest_step(flags.checkpoint);
  if (latest && !flags.resume) {
    throw UserError({.what = "--checkpoint: the folder has the checkpoints of a run",
                     .found = flags.checkpoint + " with step " + std::to_string(*latest),
                     .wanted = "a new folder, or --resume",
                     .cure = "add --resume to go on with that run, or choose another folder"});
  }
  if (latest) check_run(*latest);
  saved_.emplace(flags.checkpoint, checkpoint::CheckpointerOptions{.keep_latest = flags.keep},
                 std::source_location());
  resumed_ = latest;
}

namespace {

/// The members of `a` that `b` has not, or has with another value: `depth 4, layers 2`.
std::string differences(const json& a, const json& b) {
  std::string text;
  for (const auto& [name, value] : a.items()) {
    if (b.contains(name) && b[name] == value) continue;
    text += (text.empty() ? "" : ", ") + name + " " + value.dump();
  }
  return text.empty() ? "none of these" : text;
}

/// A JSON array of integers; none for what is not one.
std::vector<std::int64_t> integers_of(const std::string& text) {
  const json list = json::parse(text, nullptr, false);
  if (!list.is_array()) return {};
  std::vector<std::int64_t> integers;
  for (const json& item : list) {
    if (!item.is_number_integer()) return {};
    integers.push_back(item.get<std::int64_t>());
  }
  return integers;
}

}  // namespace

void Checkpoints::check_run(std::int64_t step) {
  const std::string path = checkpoint::step_path(flags_.checkpoint, step);
  checkpoint::Metadata saved = checkpoint::read_info(path).metadata;
  json found = json::parse(saved["config"], nullptr, false);
  if (!found.is_object()) found = json::object();
  json wanted = json::parse(metadata_.at("config"));
  found["model"] = saved["model"];
  wanted["model"] = metadata_.at("model");
  if (found != wanted) {
    throw UserError({.what = "--resume: the checkpoint is of another model",
                     .found = path + ": " + differences(found, wanted),
                     .wanted = differences(wanted, found),
                     .cure = "train with the model and the sizes of the checkpoint, or choose "
                             "another folder"});
  }
  if (saved.contains("data")) data_position_ = integers_of(saved["data"]);
  if (step < flags_.steps) return;
  throw UserError({.what = "--steps: the checkpoint has that many steps already",
                   .found = path + " and --steps " + std::to_string(flags_.steps),
                   .wanted = "more than " + std::to_string(step) + " steps",
                   .cure = "--steps counts those before --resume too: write for example --steps " +
                           std::to_string(2 * step)});
}

bool Checkpoints::is_due(std::int64_t done) const {
  if (!saved_) return false;
  return done == flags_.steps || (flags_.every > 0 && done % flags_.every == 0);
}

checkpoint::SaveOptions Checkpoints::options(float loss,
                                             const std::vector<std::int64_t>& data_position) const {
  checkpoint::SaveOptions options{.metric = static_cast<double>(loss), .metadata = metadata_};
  if (!data_position.empty()) options.metadata["data"] = json(data_position).dump();
  return options;
}

void Checkpoints::finish(Report& report) {
  if (!saved_) return;
  saved_->wait();
  report.line("saved      " + saved_->path(flags_.steps));
}

}  // namespace tessera::cli
