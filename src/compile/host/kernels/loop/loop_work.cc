#include "compile/host/kernels/loop/loop_work.h"

#include <algorithm>
#include <utility>

#include "compile/host/kernels/tile/tile_program_chain.h"

namespace tessera::kernels::loops {

namespace {

using Elements = LoopProgram::Elements;
using Step = LoopProgram::Step;

class Maker {
 public:
  Maker(const LoopProgram& program, const Order& order, Memory& memory)
      : program_(program), order_(order), memory_(memory) {
    find_outputs();
  }

  Works make() {
    Works works{.before = works_of(order_.before),
                .condition = works_of(order_.condition),
                .body = works_of(order_.body),
                .updates = {}};
    add_updates(works);
    return works;
  }

 private:
  struct Move {
    Home from;
    Home to;
  };

  // Which registers are read outside of the group that writes them.
  void find_outputs() {
    is_output_.assign(program_.registers.size(), false);
    for (const auto& store : program_.stores) read(store.elements);
    for (const auto& carry : program_.carries) read(carry.next);
    if (program_.decision >= 0) is_output_[at(program_.decision)] = true;
    std::vector<const Group*> writer(program_.registers.size(), nullptr);
    order_.for_each([&](const Group& group, const Step& step) {
      for (const int reg : step.outputs) writer[at(reg)] = &group;
    });
    order_.for_each([&](const Group& group, const Step& step) {
      read(step.elements);
      for (const int reg : step.inputs) {
        if (writer[at(reg)] != &group) is_output_[at(reg)] = true;
      }
    });
  }
  void read(const Elements& elements) {
    for (const auto& element : elements) is_output_[at(element.reg)] = true;
  }

  std::vector<Work> works_of(const std::vector<Group>& groups) {
    std::vector<Work> works;
    for (const Group& group : groups) {
      if (group.blocks.kernels != nullptr) {
        add_chain(group, works);
        continue;
      }
      for (const std::size_t s : group.steps) works.push_back(work_of(order_.steps[s]));
    }
    return works;
  }

  Work work_of(const Step& step) const {
    if (step.call != nullptr) return {.kind = Work::Kind::call, .called = &step};
    if (step.part != nullptr) {
      return {.kind = Work::Kind::part,
              .part = std::make_shared<const PartWork>(*step.part, memory_)};
    }
    if (step.kernel == nullptr) return copies_to(step.elements, memory_[step.output()]);
    Work work{.kind = Work::Kind::kernel, .kernel = step.kernel, .output = memory_[step.output()]};
    for (std::size_t i = 0; i < step.inputs.size(); ++i) {
      const Home& home = memory_[step.inputs[i]];
      work.inputs[i] = {.data = home.data, .is_scalar = home.size == 1};
    }
    return work;
  }

  Work copies_to(const Elements& elements, const Home& to) const {
    return {.kind = Work::Kind::copies, .copies = memory_.copies_of(elements), .output = to};
  }

  void add_chain(const Group& group, std::vector<Work>& works) {
    TileProgram program;
    program.num_registers = static_cast<int>(program_.registers.size());
    std::vector<std::size_t> steps;
    std::vector<int> outputs;
    std::size_t most = 1;
    for (const std::size_t s : group.steps) {
      const Step& step = order_.steps[s];
      TileStep& added = program.steps.emplace_back();
      added.kernel = step.kernel;
      added.num_inputs = static_cast<int>(step.inputs.size());
      std::copy(step.inputs.begin(), step.inputs.end(), added.inputs);
      added.output = step.output();
      steps.push_back(steps.size());
      most = std::max(most, memory_[step.output()].size);
      if (is_output_[at(step.output())]) outputs.push_back(step.output());
    }
    if (outputs.empty()) return;
    const tiles::ChainOrder order(program, steps, outputs);
    tiles::Chain chain = tiles::make_chain(order, memory_.dtypes(),
                                           std::vector<bool>(program_.registers.size(), false),
                                           *group.blocks.kernels);
    for (const auto& used : chain.registers) {
      tiles::set_operands(used.places, chain.stages.data(), memory_[used.reg].operand());
    }
    for (const auto& places : chain.temporaries) {
      std::byte* block = memory_.add_bytes(group.blocks.kernels->block_bytes());
      tiles::set_operands(places, chain.stages.data(), {.base = block, .mask = 0});
    }
    if (group.blocks.count == 1) {
      for (Stage& stage : chain.stages) stage.num_wanted = most;
    }
    works.push_back(
        {.kind = Work::Kind::chain, .blocks = group.blocks, .stages = std::move(chain.stages)});
    for (const int reg : outputs) {
      const Home& home = memory_[reg];
      if (home.repeats != nullptr && home.repeats != group.blocks.kernels) {
        works.push_back(copies_to({{.reg = reg, .index = 0}}, home));
      }
    }
  }

  // --- carries

  // Whole registers move first. The other carries are then put together from what is no carry.
  void add_updates(Works& works) {
    std::vector<Move> moves;
    std::vector<Work> later;
    for (const auto& carry : program_.carries) {
      if (program_.registers[at(carry.reg)].is_in_place) continue;
      const Home& home = memory_[carry.reg];
      const int reg = carry.next[0].reg;
      const std::vector<Copy> copies = memory_.copies_of(carry.next);
      const bool is_whole = copies[0].from == memory_[reg].data &&
                            copies[0].bytes == home.bytes() && memory_[reg].size == home.size;
      if (is_whole && reg == carry.reg) continue;
      if (is_whole) {
        moves.push_back({.from = memory_[reg], .to = home});
      } else if (!reads_carry(carry.next)) {
        later.push_back(copies_to(carry.next, home));
      } else {
        const Home copy = memory_.add(home.dtype, home.size);
        works.body.push_back(copies_to(carry.next, copy));
        moves.push_back({.from = copy, .to = home});
      }
    }
    add_moves(std::move(moves), works.updates);
    join_updates(works);
    works.updates.insert(works.updates.end(), later.begin(), later.end());
  }

  bool reads_carry(const Elements& elements) const {
    return std::any_of(elements.begin(), elements.end(), [&](const auto& element) {
      return std::any_of(program_.carries.begin(), program_.carries.end(),
                         [&](const auto& carry) { return carry.reg == element.reg; });
    });
  }

  // Moves all of them at once: each register is read before it is written.
  void add_moves(std::vector<Move> moves, std::vector<Work>& works) {
    while (!moves.empty()) {
      const auto is_free = [&](const Move& move) {
        return std::none_of(moves.begin(), moves.end(),
                            [&](const Move& other) { return other.from.data == move.to.data; });
      };
      auto next = std::find_if(moves.begin(), moves.end(), is_free);
      if (next == moves.end()) {
        const Home copy = memory_.add(moves[0].from.dtype, moves[0].from.size);
        add_move({.from = moves[0].from, .to = copy}, works);
        moves[0].from = copy;
        continue;
      }
      add_move(*next, works);
      moves.erase(next);
    }
  }

  // Moves vectors, because a vector that is stored in pieces is slow to load.
  static void add_move(const Move& move, std::vector<Work>& works) {
    const auto& [from, to] = move;
    if (!is_chained(to.dtype) || from.repeats != to.repeats) {
      const Copy all{.from = from.data, .offset = 0, .bytes = to.bytes()};
      works.push_back({.kind = Work::Kind::copies, .copies = {all}, .output = to});
      return;
    }
    const Blocks blocks = to.repeats != nullptr ? Blocks{.kernels = to.repeats, .count = 1}
                                                : blocks_of(to.size, is_wide(to.dtype));
    if (works.empty() || works.back().blocks != blocks) {
      works.push_back({.kind = Work::Kind::chain, .blocks = blocks, .stages = {Stage{}}});
      works.back().stages[0].function = blocks.kernels->end;
    }
    Stage stage;
    stage.function = blocks.kernels->copies[static_cast<std::size_t>(to.dtype)];
    stage.from = from.operand();
    stage.to = to.operand();
    std::vector<Stage>& stages = works.back().stages;
    stages.insert(stages.end() - 1, stage);
  }

  // The first moves may be appended to the last chain of the body.
  void join_updates(Works& works) const {
    if (works.updates.empty() || works.body.empty()) return;
    Work& last = works.body.back();
    const Work& first = works.updates.front();
    if (last.kind != Work::Kind::chain || last.blocks != first.blocks) return;
    for (const auto& store : program_.stores) {
      if (reads_carry(store.elements)) return;
    }
    last.stages.pop_back();
    last.stages.insert(last.stages.end(), first.stages.begin(), first.stages.end());
    works.updates.erase(works.updates.begin());
  }

  const LoopProgram& program_;
  const Order& order_;
  Memory& memory_;
  std::vector<bool> is_output_;  // per register
};

}  // namespace

Works works_of(const LoopProgram& program, const Order& order, Memory& memory) {
  return Maker(program, order, memory).make();
}

}  // namespace tessera::kernels::loops
