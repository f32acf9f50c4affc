#include "compile/host/mpmd/group_clocks.h"

#include <algorithm>

namespace tessera::compile::host {

namespace {

constexpr std::size_t kNothing = ~std::size_t{0};

std::size_t at(int i) { return static_cast<std::size_t>(i); }

bool communicates(const HostInstruction& instruction) {
  return std::any_of(instruction.tasks.begin(), instruction.tasks.end(),
                     [](const TileTask& task) { return task.communicates; });
}

}  // namespace

GroupClocks::GroupClocks(const HostProgram& program) {
  if (program.groups.count == 0) return;
  const std::size_t num_chains = at(program.groups.count) + 1;  // one chain is for transfers
  std::vector<std::size_t> writer(program.function->values.size(), kNothing);
  std::vector<std::size_t> last(num_chains, kNothing);
  std::vector<std::size_t> length(num_chains, 0);
  std::size_t last_to_communicate = kNothing;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const HostInstruction& instruction = program.instructions[i];
    chain_.push_back(instruction.chain);
    position_.push_back(0);
    ended_.emplace_back(num_chains, 0);
    for (const TileTask& task : instruction.tasks) {
      for (const TileRef& read : task.reads) wait_for(writer[read.value], i);
      for (const TileRef& write : task.writes) writer[write.value] = i;
    }
    if (communicates(instruction)) {
      wait_for(last_to_communicate, i);
      last_to_communicate = i;
    }
    if (instruction.chain < 0) continue;
    const std::size_t chain = at(instruction.chain);
    wait_for(last[chain], i);
    last[chain] = i;
    position_[i] = ++length[chain];
  }
}

void GroupClocks::wait_for(std::size_t early, std::size_t late) {
  if (early == kNothing || early == late) return;
  for (std::size_t chain = 0; chain < ended_[late].size(); ++chain) {
    ended_[late][chain] = std::max(ended_[late][chain], ended_[early][chain]);
  }
  if (chain_[early] < 0) return;
  std::size_t& ended = ended_[late][at(chain_[early])];
  ended = std::max(ended, position_[early]);
}

bool GroupClocks::is_before(std::size_t early, std::size_t late) const {
  return chain_[early] >= 0 && ended_[late][at(chain_[early])] >= position_[early];
}

}  // namespace tessera::compile::host
