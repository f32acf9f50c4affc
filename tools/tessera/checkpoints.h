// What --checkpoint, --every, --keep and --resume do in a run.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include <tessera/checkpoint.h>
#include <tessera/optim.h>

#include "flags.h"
#include "report.h"

namespace tessera::cli {

class Checkpoints {
 public:
  /// Of a run of the model `name` with these sizes. Throws UserError when the folder has the
  /// checkpoints of another run.
  Checkpoints(const TrainFlags& flags, std::string name, const nlohmann::json& config);

  /// The step to go on from; none to begin.
  const std::optional<std::int64_t>& resumed() const { return resumed_; }
  /// What the job said of its data when that step was saved.
  const std::vector<std::int64_t>& data_position() const { return data_position_; }
  template <typename State>
  State restore(const State& shapes, const Shardings& shardings, Report& report) {
    report.line("resume     step " + std::to_string(*resumed_) + " of " + flags_.checkpoint);
    return saved_->restore(*resumed_, shapes, shardings, {}, std::source_location());
  }
  /// Saves where it is time to, after so many steps.
  template <typename State>
  void after_step(std::int64_t done, const State& state, float loss,
                  const std::vector<std::int64_t>& data_position) {
    if (!is_due(done)) return;
    saved_->save(done, state, options(loss, data_position), std::source_location());
  }
  /// Waits until everything is on the disk.
  void finish(Report& report);

 private:
  void check_run(std::int64_t step);
  bool is_due(std::int64_t done) const;
  checkpoint::SaveOptions options(float loss, const std::vector<std::int64_t>& data_position) const;

  const TrainFlags& flags_;
  checkpoint::Metadata metadata_;
  std::optional<checkpoint::Checkpointer> saved_;
  std::optional<std::int64_t> resumed_;
  std::vector<std::int64_t> data_position_;
};

}  // namespace tessera::cli
