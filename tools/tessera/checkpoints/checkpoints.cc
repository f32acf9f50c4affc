#include "checkpoints.h"

#include <algorithm>
#include <cstdio>
#include <set>
#include <sstream>
#include <utility>

#include <tessera/engine.h>
#include <tessera/error.h>

#include "tools/cli/output_file.h"

namespace tessera::cli {

using nlohmann::json;

namespace {

/// The metadata key of a state that is not finite. Its value names the first such array.
constexpr const char* kNotFinite = "not_finite";
/// The metadata key of states saved with --allow-nan. Its value is the last step that led to a
/// finite loss.
constexpr const char* kLastGood = "last_good";

/// The flags that affect the numeric results of a run, besides the sizes of its model.
json numbers_of(const TrainFlags& flags) {
  return {{"batch", flags.batch},         {"seed", flags.seed},
          {"dtype", flags.dtype},         {"grains", flags.grains},
          {"numerics", name(numerics())}, {"optimizer", optimizer_config(flags)}};
}

}  // namespace

Checkpoints::Checkpoints(const TrainFlags& flags, std::string name, const json& config)
    : flags_(flags),
      metadata_{{"model", std::move(name)},
                {"config", config.dump()},
                {"flags", numbers_of(flags).dump()}} {
  if (flags.checkpoint.empty()) return;
  check_folder("--checkpoint", flags.checkpoint);
  const std::optional<std::int64_t> latest = checkpoint::latest_step(flags.checkpoint);
  if (latest && !flags.resume) {
    throw UserError({.what = "--checkpoint: the folder already has the checkpoints of a run",
                     .found = flags.checkpoint + " with step " + std::to_string(*latest),
                     .wanted = "a new folder, or --resume",
                     .cure = "add --resume to continue that run, or choose another folder"});
  }
  if (latest) check_run(*latest);
  saved_.emplace(flags.checkpoint, checkpoint::CheckpointerOptions{.keep_latest = flags.keep},
                 std::source_location());
  resumed_ = latest;
  if (flags.allow_nan) keep_last_good();
  saved_->prune();
}

void Checkpoints::keep_last_good() {
  // If the last state was saved without --allow-nan, the saved state before it led to a finite
  // loss; otherwise the run would have ended.
  const std::vector<std::int64_t> steps = saved_->steps();
  if (!last_good_ && steps.size() > 1) last_good_ = steps[steps.size() - 2];
  if (last_good_) saved_->keep(*last_good_);
}

namespace {

/// The members of `a` that `b` lacks or has with another value: `depth 4, layers 2`.
std::string differences(const json& a, const json& b) {
  std::string text;
  for (const auto& [name, value] : a.items()) {
    if (b.contains(name) && b[name] == value) continue;
    text += (text.empty() ? "" : ", ") + name + " " + value.dump();
  }
  return text.empty() ? "none of these" : text;
}

/// Parses a JSON array of integers; empty for any other text.
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

/// Throws UserError if a flag whose value must stay the same has another one now.
void check_same(const char* flag, const json& saved, const json& now, const std::string& path,
                const std::string& why) {
  if (saved.is_null() || saved == now) return;  // older checkpoints have no flags
  const std::string words = std::string(flag) + " " + saved.dump();
  throw UserError(
      {.what = std::string(flag) + ": the checkpoint was trained with a different number",
       .found = path + " with " + words + ", and " + flag + " " + now.dump() + " now",
       .wanted = "the same number throughout the run: " + why,
       .cure = "write " + words + ", or start a new run"});
}

/// Compares the flags of the run that saved a checkpoint with those of this run. Throws UserError
/// if the grains or the number of accumulated gradients differ; prints other differences.
void compare_flags(const std::string& path, const json& saved, const json& now) {
  if (!saved.is_object() || saved == now) return;  // older checkpoints have no flags
  check_same("--grains", saved.value("grains", json()), now["grains"], path,
             "it affects every sum");
  const json before = saved.value("optimizer", json());
  if (before.is_object()) {
    check_same("--accumulate", before.value("accumulate", json()), now["optimizer"]["accumulate"],
               path, "updates are counted in it, and gradients may be waiting for the next one");
  }
  if (process_index() != 0) return;
  const std::string text =
      "tessera: note: the flags differ from those of " + path +
      ": the results are no longer those of that run\n  before: " + differences(saved, now) +
      "\n  now:    " + differences(now, saved) + "\n";
  std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace

namespace {

/// The flags of the optimiser whose values in `a` are not those in `b`: `--optimizer sgd, no
/// --clip`.
std::string optimizer_flags(const json& a, const json& b) {
  json all = a;
  all.update(b);
  std::string text;
  for (const auto& [name, unused] : all.items()) {
    const json value = a.value(name, json());
    if (value == b.value(name, json())) continue;
    std::string flag = "--" + (name == "name" ? "optimizer" : name);
    std::replace(flag.begin(), flag.end(), '_', '-');
    text += text.empty() ? "" : ", ";
    if (value.is_null()) text += "no ";
    text += flag;
    if (value.is_string()) text += " " + value.get<std::string>();
    if (value.is_number()) text += " " + value.dump();
  }
  return text;
}

}  // namespace

void Checkpoints::check_optimizer(const std::vector<checkpoint::NamedArray>& wanted) const {
  const std::string path = checkpoint::step_path(flags_.checkpoint, *resumed_);
  const checkpoint::CheckpointInfo info = checkpoint::read_info(path);
  const auto flags = info.metadata.find("flags");
  if (flags == info.metadata.end()) return;  // older checkpoints have no flags
  const json saved = json::parse(flags->second, nullptr, false);
  const json before = saved.is_object() ? saved.value("optimizer", json()) : json();
  const json now = json::parse(metadata_.at("flags"))["optimizer"];
  if (!before.is_object() || before == now) return;
  std::set<std::pair<std::string, std::string>> found;
  std::set<std::pair<std::string, std::string>> needed;
  for (const checkpoint::SavedArray& item : info.arrays)
    found.emplace(item.name, to_string(item.type));
  for (const auto& [name, x] : wanted) needed.emplace(name, to_string(x.type()));
  if (found == needed) return;
  throw UserError({.what = "--resume: the checkpoint has the state of another optimiser",
                   .found = path + ": " + optimizer_flags(before, now),
                   .wanted = optimizer_flags(now, before),
                   .cure = "use the optimiser flags of the checkpoint, or choose another folder"});
}

void Checkpoints::check_run(std::int64_t step) {
  const std::string path = checkpoint::step_path(flags_.checkpoint, step);
  const checkpoint::CheckpointInfo info = checkpoint::read_info(path);
  checkpoint::Metadata saved = info.metadata;
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
  if (step > flags_.steps) {
    throw UserError(
        {.what = "--steps: the checkpoint already has more steps",
         .found = path + " and --steps " + std::to_string(flags_.steps),
         .wanted = "at least " + std::to_string(step) + " steps",
         .cure = "--steps also counts the steps before --resume: write for example --steps " +
                 std::to_string(2 * step)});
  }
  if (saved.contains(kNotFinite) && !flags_.allow_nan) {
    throw UserError({.what = "--resume: the state of the checkpoint is not finite",
                     .found = path + ", first in " + saved[kNotFinite],
                     .wanted = "finite numbers, or --allow-nan to continue without them",
                     .cure = "remove " + path + ", so that --resume takes the step before it"});
  }
  compare_flags(path, json::parse(saved["flags"], nullptr, false),
                json::parse(metadata_.at("flags")));
  if (saved.contains("data")) data_position_ = integers_of(saved["data"]);
  last_loss_ = info.metric;
  const std::vector<std::int64_t> good = integers_of("[" + saved[kLastGood] + "]");
  if (!good.empty()) last_good_ = good[0];
}

void Checkpoints::found_good(std::int64_t step) {
  if (!saved_ || (last_saved_ != step && resumed_ != step)) return;
  last_good_ = step;
  // Without --allow-nan, the run ends before it saves a bad state, so no bad state can cause this
  // one to be pruned.
  if (flags_.allow_nan) saved_->keep(step);
}

bool Checkpoints::is_due(std::int64_t done, bool in_any_case) const {
  if (!saved_ || last_saved_ == done || resumed_ == done) return false;
  return in_any_case || done == flags_.steps || (flags_.every > 0 && done % flags_.every == 0);
}

checkpoint::SaveOptions Checkpoints::options(float loss,
                                             const std::vector<std::int64_t>& data_position,
                                             const std::optional<std::string>& bad) const {
  checkpoint::SaveOptions options{.metric = static_cast<double>(loss), .metadata = metadata_};
  if (!data_position.empty()) options.metadata["data"] = json(data_position).dump();
  if (bad) options.metadata[kNotFinite] = *bad;
  if (last_good_ && flags_.allow_nan) options.metadata[kLastGood] = std::to_string(*last_good_);
  return options;
}

std::string Checkpoints::cure_from(std::int64_t bad_from) {
  const std::string cure = "use a smaller --lr, or --clip 1";
  if (saved_) saved_->wait();
  std::string bad;
  std::optional<std::int64_t> good;
  for (const std::int64_t step : saved_ ? saved_->steps() : std::vector<std::int64_t>()) {
    if (step < bad_from) {
      good = step;
    } else {
      bad += (bad.empty() ? "" : " and ") + saved_->path(step);
    }
  }
  if (!good && bad.empty()) return cure + "; nothing was saved";
  if (!good) return cure + ", and start a new run: " + bad + " leads to this loss";
  return cure + (bad.empty() ? "" : ", remove " + bad + ", which leads to this loss,") +
         " and add --resume: the last good state is " + saved_->path(*good);
}

UserError Checkpoints::not_finite(const std::string& what, std::int64_t step, float loss,
                                  const std::optional<std::string>& array, std::int64_t bad_from) {
  std::ostringstream found;
  found << "step " << step << " with the loss " << (std::isnan(loss) ? std::fabs(loss) : loss)
        << "; the state after it " << (array ? "is not finite, first in " + *array : "is finite");
  return UserError({.what = what,
                    .found = found.str(),
                    .wanted = "finite numbers, or --allow-nan to continue without them",
                    .cure = cure_from(bad_from)});
}

void Checkpoints::finish(Report& report) {
  if (!saved_) return;
  saved_->wait();
  const std::optional<std::int64_t> last = last_saved_ ? last_saved_ : resumed_;
  if (last) report.line("saved      " + saved_->path(*last));
}

}  // namespace tessera::cli
