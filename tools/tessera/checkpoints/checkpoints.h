// Implements --checkpoint, --every, --keep, --resume and --allow-nan in a run.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include <tessera/checkpoint.h>
#include <tessera/engine.h>
#include <tessera/optim.h>

#include "finite.h"
#include "tools/tessera/flags.h"
#include "tools/tessera/report.h"

namespace tessera::cli {

class Checkpoints {
 public:
  /// For a run of the model `name` with the sizes `config`. Throws UserError if the folder has
  /// checkpoints of another model, or any without --resume. Prints to standard error which other
  /// flags have changed since.
  Checkpoints(const TrainFlags& flags, std::string name, const nlohmann::json& config);

  /// The step to resume from; nullopt for a new run.
  const std::optional<std::int64_t>& resumed() const { return resumed_; }
  /// The job's data_position() when that step was saved.
  const std::vector<std::int64_t>& data_position() const { return data_position_; }
  /// The loss of the last step before it, if it was finite and saved.
  const std::optional<double>& last_loss() const { return last_loss_; }
  template <typename State>
  State restore(const State& shapes, const Shardings& shardings, Report& report) {
    check_optimizer(checkpoint::named_arrays(shapes));
    report.line("resume     step " + std::to_string(*resumed_) + " of " + flags_.checkpoint);
    return saved_->restore(*resumed_, shapes, shardings, {}, std::source_location());
  }
  /// A plugin may end the process in its first program, so with a plugin this saves the state
  /// before the first step.
  template <typename State>
  void before_steps(std::int64_t first, const State& state,
                    const std::vector<std::int64_t>& data_position) {
    if (engine() != "pjrt") return;
    after_step(first, state, NAN, data_position, true);
    if (saved_) saved_->wait();
  }
  /// Throws UserError if the loss is not finite, unless --allow-nan is given.
  template <typename State>
  void check_loss(std::int64_t step, float loss, const State& state) {
    if (std::isfinite(loss)) return found_good(step);
    if (flags_.allow_nan) return;
    throw not_finite("train: the loss is not finite", step, loss,
                     first_not_finite(checkpoint::named_arrays(state)), step);
  }
  /// After `done` steps, saves the state if --every asks for it, if that was the last step, or if
  /// `in_any_case` is set. Throws UserError if the state is not finite, unless --allow-nan is
  /// given.
  template <typename State>
  void after_step(std::int64_t done, const State& state, float loss,
                  const std::vector<std::int64_t>& data_position, bool in_any_case = false) {
    if (saved_) saved_->finish_if_written();
    if (!is_due(done, in_any_case)) return;
    const std::optional<std::string> bad = first_not_finite(checkpoint::named_arrays(state));
    if (bad && !flags_.allow_nan) {
      throw not_finite("train: the state is not finite", done - 1, loss, bad, done);
    }
    saved_->save(done, state, options(loss, data_position, bad), std::source_location());
    last_saved_ = done;
  }
  /// Waits until all checkpoints are on the disk, and prints the path of the last one.
  void finish(Report& report);

 private:
  void check_run(std::int64_t step);
  /// Throws UserError if the flags of the optimiser have changed and `wanted`, the arrays of the
  /// state, are not those that were saved.
  void check_optimizer(const std::vector<checkpoint::NamedArray>& wanted) const;
  void keep_last_good();
  /// Notes that the state before this step has led to a finite loss.
  void found_good(std::int64_t step);
  bool is_due(std::int64_t done, bool in_any_case) const;
  checkpoint::SaveOptions options(float loss, const std::vector<std::int64_t>& data_position,
                                  const std::optional<std::string>& bad) const;
  UserError not_finite(const std::string& what, std::int64_t step, float loss,
                       const std::optional<std::string>& array, std::int64_t bad_from);
  /// The cure for an error message: what to do when the states after `bad_from` or more steps lead
  /// to numbers that are not finite.
  std::string cure_from(std::int64_t bad_from);

  const TrainFlags& flags_;
  checkpoint::Metadata metadata_;
  std::optional<checkpoint::Checkpointer> saved_;
  std::optional<std::int64_t> resumed_;
  std::optional<std::int64_t> last_saved_;
  std::optional<std::int64_t> last_good_;  // the last saved step that led to a finite loss
  std::optional<double> last_loss_;
  std::vector<std::int64_t> data_position_;
};

}  // namespace tessera::cli
