// Adds the commands of a model: `tessera train MODEL`, `tessera show MODEL`, `tessera plan MODEL`.
#pragma once

#include <memory>

#include <tessera/profile.h>

#include "commands.h"
#include "plan/plan.h"
#include "train.h"

namespace tessera::cli {

template <typename J, typename Flags>
void add_train_command(Command& parent, const JobInfo& info, void (*add_flags)(Command&, Flags&)) {
  Command* command = parent.add_subcommand(info.name, info.help);
  auto flags = std::make_shared<Flags>();
  add_train_flags(*command, *flags);
  add_flags(*command, *flags);
  command->callback([flags, info] {
    const Mesh mesh = mesh_of(*flags, info);
    StopRequest stop;
    run_on_devices(*flags, mesh, num_groups(mesh, info), [&] {
      apply(*flags);
      J job(*flags, mesh);
      job.check_nans = flags->check_nans;
      train(job, *flags, info, mesh, stop);
    });
    if (stop.signal() != 0) throw EndedBySignal(stop.signal());
  });
}

template <typename J, typename Flags>
void add_show_command(Command& parent, const JobInfo& info, void (*add_flags)(Command&, Flags&)) {
  Command* command = parent.add_subcommand(info.name, info.help + "; nothing is run");
  auto flags = std::make_shared<Flags>();
  auto show_flags = std::make_shared<ShowFlags>();
  add_show_flags(*command, *show_flags);
  add_train_flags(*command, *flags);
  add_flags(*command, *flags);
  command->callback([flags, show_flags, info] {
    const Mesh mesh = mesh_of(*flags, info);
    apply(*flags);
    J job(*flags, mesh);
    with_lowered(job, *flags, info, mesh, [&](const LoweredProgram& step, const StepFacts& facts) {
      show(*show_flags, {.path = flags->json, .config = config_of(job, *flags)}, step,
           {.own = facts.memory, .of_host = facts.host_memory});
    });
  });
}

template <typename J, typename Flags>
void add_plan_command(Command& parent, const JobInfo& info, void (*add_flags)(Command&, Flags&)) {
  Command* command = parent.add_subcommand(info.name, info.help + "; nothing is run");
  auto flags = std::make_shared<Flags>();
  auto plan = std::make_shared<PlanFlags>();
  add_plan_flags(*command, *plan);
  add_train_flags(*command, *flags);
  add_flags(*command, *flags);
  command->callback([command, flags, plan, info] {
    fit_to_cluster(*command, info, flags->mesh_to_plan(), *plan, *flags);
    apply(*flags);
    const Cluster cluster = cluster_of(*plan, *flags);
    const Mesh mesh = mesh_of(*flags, info);
    J job(*flags, mesh);
    const StepWork work = job.work();
    with_lowered(job, *flags, info, mesh, [&](const LoweredProgram& step, const StepFacts&) {
      const Planned planned{.model = info.name,
                            .mesh = to_string(mesh),
                            .axis = info.axes[0],
                            .work = work.count,
                            .unit = work.unit,
                            .config = config_of(job, *flags)};
      report_plan(planned, plan_step(step, cluster), cluster, *plan, *flags);
    });
  });
}

/// Adds the commands of the model. They make a job J(flags, mesh); Flags derives from TrainFlags.
template <typename J, typename Flags>
void add_job(const ModelCommands& commands, const JobInfo& info,
             void (*add_flags)(Command&, Flags&)) {
  add_train_command<J>(commands.train, info, add_flags);
  add_show_command<J>(commands.show, info, add_flags);
  add_plan_command<J>(commands.plan, info, add_flags);
}

}  // namespace tessera::cli
