// `tessera show lm`: what a step of `tessera train lm` with the same flags is compiled to.

#include <memory>

#include "commands.h"
#include "lm_job.h"
#include "show.h"

namespace tessera::cli {

namespace {

void show_lm(LmFlags flags, const ShowFlags& show_flags) {
  const Mesh mesh = mesh_of(flags);
  apply(flags);
  complete(flags, mesh);
  const use_mesh scope(mesh);
  const LmState state = abstract_state(flags);
  const Array ids = eval_shape(
      [&](Key) {
        return zeros({flags.batch, flags.model.seq}, DType::i32);
      },
      Key(0));
  const auto step =
      make_step({state_shardings(flags, mesh, state), batch_sharding(mesh)}).lower(state, ids);
  show(show_flags, flags.json, step, [&] { return step.compile().memory(); });
}

}  // namespace

void add_show_lm(CLI::App& show_command) {
  CLI::App* command = show_command.add_subcommand("lm", "the language model; nothing is run");
  auto flags = std::make_shared<LmFlags>();
  auto show_flags = std::make_shared<ShowFlags>();
  add_show_flags(*command, *show_flags);
  add_lm_flags(*command, *flags);
  command->callback([flags, show_flags] { show_lm(*flags, *show_flags); });
}

}  // namespace tessera::cli
