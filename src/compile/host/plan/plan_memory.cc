#include "compile/host/plan/plan_memory.h"

#include <algorithm>
#include <utility>

#include <tessera/error.h>

#include "compile/host/mpmd/group_bytes.h"
#include "compile/host/mpmd/group_clocks.h"
#include "compile/host/plan/arena.h"
#include "compile/host/plan/lives.h"

namespace tessera::compile::host {

namespace {

constexpr std::int64_t kAlignment = 64;

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

class MemoryPlanner {
 public:
  MemoryPlanner(const HostProgram& program, const CompileOptions& options)
      : program_(program),
        f_(*program.function),
        options_(options),
        lives_(program),
        clocks_(program),
        arenas_(index(program.groups.count) + 1),
        expired_(arenas_.size()),
        chains_(arenas_.size()) {}

  run::Executable plan() {
    find_ports();
    choose_aliases();
    emit_tasks();
    join_arenas();
    if (is_grouped()) {
      find_group_bytes();
    } else {
      find_device_bytes();
    }
    return std::move(executable_);
  }

 private:
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  bool is_grouped() const { return program_.groups.count > 0; }
  /// There is one arena per group of devices; the first is for instructions of no group.
  std::size_t arena_of(std::size_t instruction) const {
    return index(program_.instructions[instruction].info.group + 1);
  }

  std::size_t number(const TileRef& ref) const { return lives_.number(ref); }

  // --- ports

  void find_ports() {
    input_of_.assign(f_.values.size(), -1);
    output_of_.assign(f_.values.size(), -1);
    for (std::size_t i = 0; i < f_.inputs.size(); ++i) {
      input_of_[f_.inputs[i]] = static_cast<int>(i);
    }
    for (std::size_t i = 0; i < f_.outputs.size(); ++i) {
      output_of_[f_.outputs[i]] = static_cast<int>(i);
    }
  }

  /// A donated input gives its buffers to an output, unless it is still read after or while the
  /// output is written.
  void choose_aliases() {
    std::vector<int> alias;
    for (std::size_t i = 0; i < f_.inputs.size(); ++i) {
      run::Port port;
      port.is_donated = options_.is_donated[i];
      port.tile_bytes = lives_.bytes_of(f_.inputs[i]);
      executable_.inputs.push_back(std::move(port));
    }
    for (std::size_t i = 0; i < f_.outputs.size(); ++i) {
      run::Port port;
      port.tile_bytes = lives_.bytes_of(f_.outputs[i]);
      const int donated = options_.output_alias[i];
      if (donated >= 0 && can_alias(f_.outputs[i], f_.inputs[static_cast<std::size_t>(donated)])) {
        port.alias = donated;
      }
      alias.push_back(port.alias);
      executable_.outputs.push_back(std::move(port));
    }
    if (!is_grouped()) in_ports_ = values_in_ports(program_, lives_, alias);
  }

  bool can_alias(ValueId output, ValueId input) const {
    return output == input || lives_.may_follow(output, input);
  }

  /// The output whose memory this value takes when it is written, or -1.
  int output_with_memory_of(ValueId id) const {
    if (output_of_[id] >= 0 || is_grouped()) return output_of_[id];
    return in_ports_.port[id];
  }

  /// What was in the memory of an output before the value; kNoValue if nothing was.
  ValueId before_in_port(ValueId id, const run::Port& output) const {
    if (!is_grouped()) return in_ports_.before[id];
    return output.alias < 0 ? ir::kNoValue : f_.inputs[static_cast<std::size_t>(output.alias)];
  }

  // --- tasks and places

  void emit_tasks() {
    places_.assign(lives_.size(), kNoPlace);
    writer_.assign(lives_.size(), kNoTask);
    readers_.resize(lives_.size());
    expiring_.resize(program_.instructions.size() + 1);
    for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
      executable_.instructions.push_back(program_.instructions[i].info);
      if (is_grouped()) release_what_ended_before(i);
      if (communicates(program_.instructions[i])) begin_exchange();
      for (const TileTask& task : program_.instructions[i].tasks) {
        emit_task(i, task);
        count_work(task, executable_.instructions.back());
      }
      for (std::size_t tile : expiring_[i]) expire(tile);
    }
  }

  void count_work(const TileTask& task, run::Instruction& instruction) const {
    if (task.kernel != nullptr) instruction.flops += task.kernel->flops();
    std::int64_t whole = 0;
    for (const auto* tiles : {&task.reads, &task.writes}) {
      for (const TileRef& tile : *tiles) whole += lives_[number(tile)].bytes;
    }
    instruction.bytes += std::min(whole, task.touched_bytes ? touched_bytes(task) : whole);
  }

  std::int64_t touched_bytes(const TileTask& task) const {
    std::int64_t bytes = *task.touched_bytes;
    for (const auto& [write, read] : task.may_share) {
      if (!lies_in(task.writes[write], task.reads[read])) {
        bytes += 2 * lives_[number(task.writes[write])].bytes;
      }
    }
    return bytes;
  }

  /// Whether a tile that is written lies in the memory of one that is read.
  bool lies_in(const TileRef& written, const TileRef& read) const {
    const std::uint32_t to = places_[number(written)], from = places_[number(read)];
    if (to == from) return true;
    const run::Place& result = executable_.places[to];
    const run::Place& operand = executable_.places[from];
    if (result.space != run::Place::Space::output) return false;
    if (operand.space == run::Place::Space::output) return operand.port == result.port;
    return operand.space == run::Place::Space::input &&
           executable_.outputs[result.port].alias == static_cast<int>(operand.port);
  }

  static std::vector<run::SourceTile> written_by(const TileTask& task) {
    std::vector<run::SourceTile> tiles;
    for (const TileRef& ref : task.writes) tiles.push_back({.value = ref.value, .tile = ref.tile});
    return tiles;
  }

  void emit_task(std::size_t instruction, const TileTask& task) {
    const auto id = static_cast<std::uint32_t>(executable_.tasks.size());
    executable_.tasks.push_back({.kernel = task.kernel,
                                 .control = task.control,
                                 .instruction = static_cast<std::uint32_t>(instruction),
                                 .places = {},
                                 .successors = {},
                                 .num_predecessors = 0,
                                 .written = written_by(task),
                                 .communicates = task.communicates});
    std::vector<std::uint32_t> before;
    if (task.communicates) {
      // In program order, so that all processes meet in the same collective.
      if (last_to_communicate_ != kNoTask) before.push_back(last_to_communicate_);
      last_to_communicate_ = id;
      executable_.communicates = true;
    }
    for (const TileRef& ref : task.reads) {
      const std::size_t tile = number(ref);
      if (writer_[tile] != kNoTask) before.push_back(writer_[tile]);
      readers_[tile].push_back(id);
      executable_.tasks[id].places.push_back(place_of_input(ref));
    }
    for (std::size_t i = 0; i < task.writes.size(); ++i) {
      const std::size_t tile = number(task.writes[i]);
      writer_[tile] = id;
      place_write(instruction, task, i, before);
      executable_.tasks[id].places.push_back(places_[tile]);
    }
    for (std::int64_t bytes : task.scratch) {
      executable_.tasks[id].places.push_back(place_scratch(instruction, id, bytes, before));
    }
    follow_chain(instruction, id, before);
    exchange_before_.push_back(task.communicates ? num_exchanges_ : exchange_before(before));
    std::sort(before.begin(), before.end());
    before.erase(std::unique(before.begin(), before.end()), before.end());
    for (std::uint32_t other : before) {
      if (other == id) continue;
      executable_.tasks[other].successors.push_back(id);
      executable_.tasks[id].num_predecessors += 1;
    }
  }

  /// In a group, the tasks of an instruction end before those of the next one start.
  void follow_chain(std::size_t instruction, std::uint32_t id, std::vector<std::uint32_t>& before) {
    const int chain = program_.instructions[instruction].chain;
    if (chain < 0) return;
    ChainEnd& end = chains_[index(chain)];
    if (end.instruction != instruction) {
      end.previous = std::exchange(end.tasks, {});
      end.instruction = instruction;
    }
    before.insert(before.end(), end.previous.begin(), end.previous.end());
    end.tasks.push_back(id);
  }

  std::uint32_t add_place(run::Place place, std::size_t arena = kNoArena) {
    executable_.places.push_back(place);
    arena_of_place_.push_back(arena);
    return static_cast<std::uint32_t>(executable_.places.size() - 1);
  }

  std::uint32_t place_of_input(const TileRef& ref) {
    std::uint32_t& place = places_[number(ref)];
    if (place == kNoPlace) {
      require(input_of_[ref.value] >= 0, "a tile is written before it is read");
      place = add_place({.space = run::Place::Space::input,
                         .port = static_cast<std::uint32_t>(input_of_[ref.value]),
                         .tile = tile_of_port(ref),
                         .offset = 0});
    }
    return place;
  }

  /// Ports have only the tiles that this process computes.
  std::uint32_t tile_of_port(const TileRef& ref) const {
    if (program_.blocks == nullptr) return static_cast<std::uint32_t>(ref.tile);
    const std::vector<std::int64_t> tiles = program_.tiles(ref.value);
    return static_cast<std::uint32_t>(std::lower_bound(tiles.begin(), tiles.end(), ref.tile) -
                                      tiles.begin());
  }

  void place_write(std::size_t instruction, const TileTask& task, std::size_t write,
                   std::vector<std::uint32_t>& before) {
    const TileRef& ref = task.writes[write];
    const std::size_t tile = number(ref);
    if (const int output = output_with_memory_of(ref.value); output >= 0) {
      const auto port = static_cast<std::uint32_t>(output);
      places_[tile] = add_place({.space = run::Place::Space::output,
                                 .port = port,
                                 .tile = tile_of_port(ref),
                                 .offset = 0});
      const ValueId previous = before_in_port(ref.value, executable_.outputs[port]);
      if (previous != ir::kNoValue) wait_for(number({previous, ref.tile}), before);
      return;
    }
    if (!share_in_place(instruction, task, write, before)) place_in_arena(tile, before);
  }

  void place_in_arena(std::size_t tile, std::vector<std::uint32_t>& before) {
    std::vector<std::size_t> previous;
    const std::int64_t bytes = bytes_in_arena(tile);
    const std::size_t arena = arena_of(lives_[tile].begin);
    const std::int64_t offset = arenas_[arena].take(bytes, exchange_before(before), previous);
    for (std::size_t other : previous) wait_for(other, before);
    places_[tile] = add_place({.space = run::Place::Space::arena, .offset = offset}, arena);
    expiring_[lives_[tile].end].push_back(tile);
  }

  /// Scratch is an additional tile that exists during one instruction and belongs to no value.
  std::uint32_t place_scratch(std::size_t instruction, std::uint32_t task, std::int64_t bytes,
                              std::vector<std::uint32_t>& before) {
    const std::size_t tile = lives_.size();
    lives_.add({.bytes = bytes, .begin = instruction, .end = instruction});
    places_.push_back(kNoPlace);
    writer_.push_back(task);
    readers_.emplace_back();
    place_in_arena(tile, before);
    return places_[tile];
  }

  /// Overwrites a tile of the arena whose last reader is this task.
  bool share_in_place(std::size_t instruction, const TileTask& task, std::size_t write,
                      std::vector<std::uint32_t>& before) {
    for (const auto& [position, read] : task.may_share) {
      if (position != write) continue;
      const std::size_t from = number(task.reads[read]);
      const std::size_t to = number(task.writes[write]);
      auto& dying = expiring_[instruction];
      const auto found = std::find(dying.begin(), dying.end(), from);
      if (found == dying.end() || lives_[from].bytes != lives_[to].bytes) continue;
      if (!lives_.shares_in_place(task.writes[write], task.reads[read])) continue;
      if (is_grouped() && !is_alone_with(instruction, from)) continue;
      dying.erase(found);
      wait_for(from, before);
      places_[to] = places_[from];
      expiring_[lives_[to].end].push_back(to);
      return true;
    }
    return false;
  }

  /// All earlier tasks that use the tile must end first.
  void wait_for(std::size_t tile, std::vector<std::uint32_t>& before) const {
    if (writer_[tile] != kNoTask) before.push_back(writer_[tile]);
    before.insert(before.end(), readers_[tile].begin(), readers_[tile].end());
  }

  std::int64_t bytes_in_arena(std::size_t tile) const {
    return std::max(aligned(lives_[tile].bytes), kAlignment);
  }

  /// The tile is not read any more. Other groups may not have read it yet when the next instruction
  /// of its own group runs, and that instruction must not wait for them just to get memory.
  void expire(std::size_t tile) {
    if (run::kIsPoisoned) add_dead_range(tile);
    if (is_grouped()) {
      expired_[arena_of_place_[places_[tile]]].push_back(tile);
    } else {
      release(tile);
    }
  }

  void release(std::size_t tile) {
    const std::uint32_t place = places_[tile];
    arenas_[arena_of_place_[place]].give_back(executable_.places[place].offset,
                                              bytes_in_arena(tile), tile, exchange_before(tile));
  }

  // --- exchanges with other processes: tasks that do not need their messages run meanwhile

  static bool communicates(const HostInstruction& instruction) {
    return std::any_of(instruction.tasks.begin(), instruction.tasks.end(),
                       [](const TileTask& task) { return task.communicates; });
  }

  void begin_exchange() {
    num_exchanges_ += 1;
    if (num_exchanges_ <= kMostOpen) return;
    for (Arena& arena : arenas_) arena.end_exchange(num_exchanges_ - kMostOpen);
  }

  /// The number of the last exchange that one of these tasks waits for, or is.
  std::int64_t exchange_before(const std::vector<std::uint32_t>& tasks) const {
    std::int64_t last = 0;
    for (const std::uint32_t task : tasks) {
      const bool is_emitted = task < exchange_before_.size();  // otherwise it is the next one
      if (is_emitted) last = std::max(last, exchange_before_[task]);
    }
    return last;
  }
  /// The same for the tasks that use a tile. Most programs have no exchanges.
  std::int64_t exchange_before(std::size_t tile) const {
    if (num_exchanges_ == 0) return 0;
    std::vector<std::uint32_t> users;
    wait_for(tile, users);
    return exchange_before(users);
  }

  void release_what_ended_before(std::size_t instruction) {
    std::vector<std::size_t>& tiles = expired_[arena_of(instruction)];
    std::erase_if(tiles, [&](std::size_t tile) {
      const bool has_ended = ends_before(tile, instruction);
      if (has_ended) release(tile);
      return has_ended;
    });
  }

  /// Whether all users of the tile end before the instruction starts, whatever memory the
  /// instruction uses.
  bool ends_before(std::size_t tile, std::size_t instruction) const {
    std::vector<std::uint32_t> users;
    wait_for(tile, users);
    return std::all_of(users.begin(), users.end(), [&](std::uint32_t user) {
      const std::size_t other = executable_.tasks[user].instruction;
      return other == instruction || clocks_.is_before(other, instruction);
    });
  }

  /// Whether the tile belongs to the group of the instruction, and no other group uses it when the
  /// instruction runs.
  bool is_alone_with(std::size_t instruction, std::size_t tile) const {
    return arena_of_place_[places_[tile]] == arena_of(instruction) &&
           ends_before(tile, instruction);
  }

  void add_dead_range(std::size_t tile) {
    run::DeadRange range{.offset = 0, .bytes = bytes_in_arena(tile), .users = {}};
    wait_for(tile, range.users);
    std::sort(range.users.begin(), range.users.end());
    range.users.erase(std::unique(range.users.begin(), range.users.end()), range.users.end());
    executable_.dead_ranges.push_back(std::move(range));
    place_of_range_.push_back(places_[tile]);
  }

  /// Lays out the arenas one after the other.
  void join_arenas() {
    std::vector<std::int64_t> start;
    for (const Arena& arena : arenas_) {
      start.push_back(executable_.arena_bytes);
      executable_.arena_bytes += arena.size();
    }
    for (std::size_t place = 0; place < arena_of_place_.size(); ++place) {
      if (arena_of_place_[place] == kNoArena) continue;
      executable_.places[place].offset += start[arena_of_place_[place]];
    }
    for (std::size_t i = 0; i < place_of_range_.size(); ++i) {
      executable_.dead_ranges[i].offset = executable_.places[place_of_range_[i]].offset;
    }
  }

  void find_group_bytes() {
    std::vector<GroupBytes> groups = group_bytes(program_, executable_.outputs, executable_.held);
    // The arena of this process is that of its group, which may have nothing to do.
    const std::size_t own = program_.own_group ? index(*program_.own_group) : groups.size();
    if (own < groups.size()) groups[own].arena = executable_.arena_bytes;
    for (const GroupBytes& bytes : groups) {
      const std::int64_t peak = bytes.ports + bytes.arena;
      executable_.group_peak_bytes.push_back(peak);
      executable_.device_peak_bytes = std::max(executable_.device_peak_bytes, peak);
      executable_.device_arena_bytes = std::max(executable_.device_arena_bytes, bytes.arena);
    }
  }

  // --- what one device would hold

  /// A device holds one tile of each value: its arguments and results, and the largest sum of the
  /// other tiles that are live at the same time.
  void find_device_bytes() {
    std::int64_t ports = 0;
    for (ValueId id = 0; id < f_.values.size(); ++id) {
      const std::vector<std::int64_t> bytes = lives_.bytes_of(id);
      const std::int64_t largest = *std::max_element(bytes.begin(), bytes.end());
      const int output = output_of_[id];
      if (input_of_[id] >= 0) {
        ports += largest;
        hold_port(id, largest);
        continue;
      }
      if (output >= 0) {
        if (executable_.outputs[static_cast<std::size_t>(output)].alias >= 0) continue;
        ports += largest;
        hold_port(id, largest);
        continue;
      }
      const std::size_t tile = number({id, program_.tiles(id)[0]});
      if (writer_[tile] == kNoTask || output_with_memory_of(id) >= 0) continue;
      hold(id, largest, lives_[tile].begin, lives_[tile].end);
    }
    for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
      for (const TileTask& task : program_.instructions[i].tasks) {
        hold(run::HeldBytes::kScratch, task.device_scratch_bytes, i, i);
      }
    }
    for (const Unmade& unmade : program_.unmade) hold(unmade);
    std::vector<std::int64_t> change(program_.instructions.size() + 2, 0);
    for (const run::HeldBytes& held : executable_.held) {
      if (held.is_port) continue;
      change[held.first] += held.bytes;
      change[held.last + 1] -= held.bytes;
    }
    std::int64_t live = 0;
    for (std::int64_t bytes : change) {
      live += bytes;
      executable_.device_arena_bytes = std::max(executable_.device_arena_bytes, live);
    }
    if (is_one_of_several_processes()) {
      // Tasks that wait for messages keep memory that others could have taken.
      executable_.device_arena_bytes =
          std::max(executable_.device_arena_bytes, executable_.arena_bytes);
    }
    executable_.device_peak_bytes = ports + executable_.device_arena_bytes;
  }

  /// Whether this process computes for one device, and exchanges messages with others.
  bool is_one_of_several_processes() const {
    return executable_.communicates && options_.target.runs && program_.blocks != nullptr &&
           program_.blocks->devices_per_block() == 1;
  }

  /// In all but one of the instructions, another value is held instead. It is already counted,
  /// unless it is an argument or a result.
  void hold(const Unmade& unmade) {
    const auto [id, first, last, instead, is_ahead] = unmade;
    const std::int64_t bytes = lives_.bytes_of(id)[0];
    const bool is_counted =
        instead != ir::kNoValue && input_of_[instead] < 0 && output_of_[instead] < 0;
    const std::int64_t more = bytes - (is_counted ? lives_.bytes_of(instead)[0] : 0);
    const std::size_t whole = is_ahead ? last : first;
    hold(id, bytes, whole, whole);
    if (first < last) hold(id, more, first + (is_ahead ? 0 : 1), last - (is_ahead ? 1 : 0));
  }

  void hold_port(std::uint32_t value, std::int64_t bytes) {
    executable_.held.push_back({.value = value, .bytes = bytes, .is_port = true});
  }

  void hold(std::uint32_t value, std::int64_t bytes, std::size_t first, std::size_t last) {
    if (bytes == 0) return;
    executable_.held.push_back({.value = value, .bytes = bytes, .first = first, .last = last});
  }

  /// An exchange counts as ended when so many have begun after it.
  static constexpr std::int64_t kMostOpen = 2;
  static constexpr std::uint32_t kNoTask = ~std::uint32_t{0};
  static constexpr std::uint32_t kNoPlace = ~std::uint32_t{0};
  static constexpr std::size_t kNoArena = ~std::size_t{0};

  const HostProgram& program_;
  const Function& f_;
  const CompileOptions& options_;
  Lives lives_;  // scratch last
  run::Executable executable_;
  PortValues in_ports_;        // unused in a program with groups
  std::vector<int> input_of_;  // per value: port, or -1
  std::vector<int> output_of_;
  std::vector<std::uint32_t> places_;  // per tile
  std::vector<std::uint32_t> writer_;  // per tile: its task
  std::vector<std::vector<std::uint32_t>> readers_;
  std::vector<std::vector<std::size_t>> expiring_;  // per instruction: tiles that die after it
  std::uint32_t last_to_communicate_ = kNoTask;
  std::int64_t num_exchanges_ = 0;             // that have begun
  std::vector<std::int64_t> exchange_before_;  // per task
  GroupClocks clocks_;
  std::vector<Arena> arenas_;
  std::vector<std::vector<std::size_t>> expired_;  // per arena: tiles whose range is not free yet
  /// The last instruction of a chain that has tasks so far, and the one before it.
  struct ChainEnd {
    std::size_t instruction = ~std::size_t{0};
    std::vector<std::uint32_t> tasks;
    std::vector<std::uint32_t> previous;
  };
  std::vector<ChainEnd> chains_;
  std::vector<std::size_t> arena_of_place_;    // kNoArena for ports
  std::vector<std::uint32_t> place_of_range_;  // per dead range
};

}  // namespace

run::Executable plan_memory(const HostProgram& program, const CompileOptions& options) {
  return MemoryPlanner(program, options).plan();
}

}  // namespace tessera::compile::host
