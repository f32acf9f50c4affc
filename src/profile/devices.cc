// The rows of devices: steps, modules, ops and transfers.
#include <algorithm>
#include <fmt/format.h>
#include <queue>

#include "ops/control/mpmd.h"
#include "profile/rows.h"

namespace tessera::profile {

namespace {

struct Interval {
  std::int64_t start_ns;
  std::int64_t end_ns;

  void add(const Interval& other) {
    start_ns = std::min(start_ns, other.start_ns);
    end_ns = std::max(end_ns, other.end_ns);
  }
};

/// Finds the devices that a task computes for: those that hold a tile that the task writes.
class Holders {
 public:
  explicit Holders(int rank) : rank_(rank) {}

  const std::vector<int>& of(const Computation& computation, std::uint32_t task) {
    const auto [place, is_new] = known_.try_emplace({&computation, task});
    if (is_new) place->second = find(computation, computation.executable->tasks[task].written);
    return place->second;
  }

 private:
  std::vector<int> find(const Computation& computation,
                        const std::vector<run::SourceTile>& written) const {
    const ir::Function* f = computation.source;
    if (f == nullptr) return {};
    if (rank_ >= 0) return {0};
    std::vector<int> devices;
    const std::int64_t count = std::max<std::int64_t>(1, f->mesh.num_devices());
    for (std::int64_t device = 0; device < count; ++device) {
      const AtomDigits digits = device_digits(f->mesh, device);
      const bool holds = std::any_of(written.begin(), written.end(), [&](const auto& tile) {
        return computation.layouts[tile.value].tile_at(digits) == tile.tile;
      });
      if (holds) devices.push_back(static_cast<int>(device));
    }
    return devices;
  }

  int rank_;
  std::map<std::pair<const Computation*, std::uint32_t>, std::vector<int>> known_;
};

/// The time of an op on one device. Several threads and tasks may have run parts of the op, and a
/// part may have been computed for several devices.
struct OpTime {
  int device;
  std::uint32_t site;
  std::uint32_t run;
  std::uint32_t instruction;
  Interval time;
  double turn;         // the share of a part's devices that come before this one: 0 to 1
  double own_ns;       // this device's equal share of the time of the parts
  double together_ns;  // the time of the parts

  auto key() const { return std::tuple(device, site, run, instruction); }

  void add(const OpTime& other) {
    time.add(other.time);
    own_ns += other.own_ns;
    together_ns += other.together_ns;
  }
  /// The interval that is shown for this device. Devices that share parts are shown one after the
  /// other. The time between parts does not count.
  Interval own() const {
    const auto length = static_cast<double>(time.end_ns - time.start_ns);
    const double busy = std::min(length, together_ns);
    const double own = together_ns > 0 ? busy * own_ns / together_ns : busy;
    const double before = std::min(length * turn, length - own);
    return {time.start_ns + static_cast<std::int64_t>(before),
            time.start_ns + static_cast<std::int64_t>(before + own)};
  }
};

/// Sorts events so that any two are nested or disjoint. If two events overlap and the later one
/// ends last, its start is moved to the end of the earlier one.
std::vector<Event> nested(const std::vector<Event>& events) {
  const auto is_later = [](const Event& a, const Event& b) {
    return std::pair(a.start_ns, b.end_ns) > std::pair(b.start_ns, a.end_ns);
  };
  std::priority_queue waiting(is_later, events);
  std::vector<Event> sorted;
  std::vector<std::int64_t> ends;  // of the events around the next one, the innermost last
  while (!waiting.empty()) {
    Event event = waiting.top();
    waiting.pop();
    while (!ends.empty() && ends.back() <= event.start_ns) ends.pop_back();
    if (!ends.empty() && event.end_ns > ends.back()) {
      event.start_ns = ends.back();
      waiting.push(std::move(event));
      continue;
    }
    ends.push_back(event.end_ns);
    sorted.push_back(std::move(event));
  }
  return sorted;
}

/// Makes events disjoint, because the plugin drops ops that enclose others. Ops that ran at the
/// same time share their common time: each moment is given to one of them.
std::vector<Event> one_by_one(const std::vector<Event>& events) {
  std::vector<Event> line = nested(events);
  std::vector<std::int64_t> own(line.size());
  std::vector<bool> is_within(line.size());
  std::vector<std::size_t> around;
  for (std::size_t i = 0; i < line.size(); ++i) {
    own[i] = line[i].end_ns - line[i].start_ns;
    while (!around.empty() && line[around.back()].end_ns <= line[i].start_ns) around.pop_back();
    is_within[i] = !around.empty();
    if (is_within[i]) own[around.back()] -= own[i];
    around.push_back(i);
  }
  std::int64_t end = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    // A nested event is moved after the event around it, which was shortened to make room.
    if (is_within[i] || line[i].start_ns < end) line[i].start_ns = end;
    end = line[i].end_ns = line[i].start_ns + own[i];
  }
  return line;
}

struct Device {
  Plane plane;
  std::map<const Op*, std::size_t> op_kinds;
  std::map<std::string, std::size_t> named_kinds;
  std::vector<Event> ops;
  std::vector<Event> modules;
  std::vector<Event> transfers;

  std::size_t kind_named(const std::string& name) {
    const auto [place, is_new] = named_kinds.try_emplace(name, 0);
    if (is_new) place->second = plane.add_kind({.name = name});
    return place->second;
  }
};

/// A value that is sent from a task of one group to a task of another group.
struct Transfer {
  std::uint32_t from;  // instructions
  std::uint32_t to;
  Type type;
};

/// Finds the transfers of a pipeline, with the tasks that compute and read the values.
class TransferFinder {
 public:
  explicit TransferFinder(const Computation& root) : root_(root), f_(*root.source) {
    const std::vector<run::Instruction>& instructions = root.executable->instructions;
    for (std::uint32_t i = 0; i < instructions.size(); ++i) {
      if (!instructions[i].equations.empty()) instruction_of_[instructions[i].equations[0]] = i;
    }
    for (const auto& [index, number] : instruction_of_) {
      if (!ops::is_task(f_.equations[index])) continue;
      for (const ir::ValueId id : f_.equations[index].operands) follow(id, number, false);
    }
  }
  const std::vector<Transfer>& all() const { return transfers_; }

 private:
  void follow(ir::ValueId id, std::uint32_t to, bool is_sent) {
    const std::size_t index = root_.definitions[id];
    if (index == Computation::kInput) return;
    const ir::Equation& equation = f_.equations[index];
    if (ops::is_task(equation)) {
      if (is_sent) transfers_.push_back({instruction_of_.at(index), to, root_.local_type(id)});
      return;
    }
    for (const ir::ValueId operand : equation.operands) {
      follow(operand, to, is_sent || ops::is_transfer(equation));
    }
  }

  const Computation& root_;
  const ir::Function& f_;
  std::map<std::size_t, std::uint32_t> instruction_of_;  // per equation
  std::vector<Transfer> transfers_;
};

class DeviceRows {
 public:
  explicit DeviceRows(const Traced& traced) : traced_(traced), holders_(traced.trace().rank) {}

  std::vector<Plane> make() {
    for (const run::ExecutionTrace& execution : traced_.trace().engine.executions) {
      if (const Program* program = traced_.program_of(execution)) add(execution, *program);
    }
    std::vector<Plane> planes;
    for (auto& [number, device] : devices_) planes.push_back(finish(number, device));
    return planes;
  }

 private:
  /// The number of devices in a group. The devices of a pipeline are numbered group by group.
  static int group_size(const Program& program) {
    const ir::Function* source = program.root().source;
    return source == nullptr
               ? 1
               : static_cast<int>(std::max<std::int64_t>(1, source->mesh.num_devices()));
  }

  int number_of(int device, int group, const Program& program) const {
    const int rank = traced_.trace().rank;
    return rank >= 0 ? rank : device + std::max(group, 0) * group_size(program);
  }

  Event event(std::size_t kind, const Interval& time) const {
    return {.kind = kind,
            .start_ns = traced_.since_start(time.start_ns),
            .end_ns =
                std::max(traced_.since_start(time.end_ns), traced_.since_start(time.start_ns) + 1),
            .step = traced_.step_at(time.start_ns)};
  }

  void add(const run::ExecutionTrace& execution, const Program& program) {
    const std::vector<SitePlace> places = places_of(execution, program);
    const std::vector<run::Task>& tasks = execution.executable->tasks;
    std::vector<OpTime> times;
    std::map<std::uint32_t, Interval> task_times;  // of the outermost executable, by instruction
    for (const run::PartTime& part : execution.parts) {
      const SitePlace& place = places[part.site];
      if (place.computation == nullptr) continue;
      const Interval time{part.start_ns, part.end_ns};
      const std::uint32_t root_task = place.is_root ? part.task : place.root_task;
      const std::uint32_t root = tasks[root_task].instruction;
      const auto [known, is_new] = task_times.try_emplace(root, time);
      if (!is_new) known->second.add(time);
      const int group = execution.executable->instructions[root].group;
      const std::vector<int>& holders = holders_.of(*place.computation, part.task);
      const auto together = static_cast<double>(time.end_ns - time.start_ns);
      for (std::size_t i = 0; i < holders.size(); ++i) {
        const auto count = static_cast<double>(holders.size());
        times.push_back({.device = number_of(holders[i], group, program),
                         .site = part.site,
                         .run = part.run,
                         .instruction = place.computation->executable->tasks[part.task].instruction,
                         .time = time,
                         .turn = static_cast<double>(i) / count,
                         .own_ns = together / count,
                         .together_ns = together});
      }
    }
    add_ops(std::move(times), places, program);
    if (execution.executable->group_peak_bytes.empty()) {
      add_module(execution, program);
    } else {
      add_tasks(execution, program, task_times);
    }
  }

  void add_ops(std::vector<OpTime> times, const std::vector<SitePlace>& places,
               const Program& program) {
    std::sort(times.begin(), times.end(),
              [](const OpTime& a, const OpTime& b) { return a.key() < b.key(); });
    for (std::size_t i = 0; i < times.size();) {
      OpTime op = times[i];
      for (++i; i < times.size() && times[i].key() == op.key(); ++i) op.add(times[i]);
      Device& device = devices_[op.device];
      const Op& what = places[op.site].computation->ops[op.instruction];
      const auto [place, is_new] = device.op_kinds.try_emplace(&what, 0);
      if (is_new) place->second = device.plane.add_kind(op_kind(program, what));
      device.ops.push_back(event(place->second, op.own()));
    }
  }

  void add_module(const run::ExecutionTrace& execution, const Program& program) {
    for (int i = 0; i < (traced_.trace().rank >= 0 ? 1 : group_size(program)); ++i) {
      Device& device = devices_[number_of(i, 0, program)];
      device.modules.push_back(
          event(device.kind_named(program.title()), {execution.start_ns, execution.end_ns}));
    }
  }

  static std::string task_name(const run::Instruction& task, const Program& program) {
    const std::string layer = task.stage < 0 ? "" : fmt::format("_layer_{}", task.stage);
    const std::string microbatch = task.microbatch < 0 ? "" : fmt::format("__{}", task.microbatch);
    return fmt::format("p{}{}.{}{}({})", task.group, layer, task.name, microbatch, program.id());
  }

  /// Shows the tasks of groups as modules. The plugin sorts rows by the stage in their names.
  void add_tasks(const run::ExecutionTrace& execution, const Program& program,
                 const std::map<std::uint32_t, Interval>& task_times) {
    for (const auto& [number, time] : task_times) {
      const run::Instruction& instruction = execution.executable->instructions[number];
      if (!instruction.is_task) continue;
      const std::string name = task_name(instruction, program);
      for (const int number_of_device : devices_of(instruction.group, program)) {
        Device& device = devices_[number_of_device];
        device.modules.push_back(event(device.kind_named(name), time));
      }
    }
    if (traced_.trace().rank < 0) add_transfers(execution, program, task_times);
  }

  std::vector<int> devices_of(int group, const Program& program) const {
    if (traced_.trace().rank >= 0) return {traced_.trace().rank};
    std::vector<int> numbers;
    for (int i = 0; i < group_size(program); ++i) numbers.push_back(number_of(i, group, program));
    return numbers;
  }

  /// Within one process a transfer copies nothing. It is shown as an arrow from the end of the task
  /// that computes the value to the start of the task that reads it.
  void add_transfers(const run::ExecutionTrace& execution, const Program& program,
                     const std::map<std::uint32_t, Interval>& task_times) {
    const auto [place, is_new] = transfers_.try_emplace(&program);
    if (is_new) place->second = TransferFinder(program.root()).all();
    const std::vector<run::Instruction>& instructions = execution.executable->instructions;
    for (const Transfer& transfer : place->second) {
      const auto from = task_times.find(transfer.from);
      const auto to = task_times.find(transfer.to);
      if (from == task_times.end() || to == task_times.end()) continue;
      const int sender = instructions[transfer.from].group;
      const int receiver = instructions[transfer.to].group;
      for (int i = 0; i < group_size(program); ++i) {
        const std::int64_t arrow = ++num_arrows_;
        Device& source = devices_[number_of(i, sender, program)];
        Device& target = devices_[number_of(i, receiver, program)];
        const std::string what = to_string(transfer.type);
        Event sent = event(source.kind_named(fmt::format("send {} to group {}", what, receiver)),
                           {from->second.end_ns, from->second.end_ns});
        Event received =
            event(target.kind_named(fmt::format("receive {} from group {}", what, sender)),
                  {to->second.start_ns, to->second.start_ns});
        sent.sends = arrow;
        received.receives = arrow;
        source.transfers.push_back(std::move(sent));
        target.transfers.push_back(std::move(received));
      }
    }
  }

  Plane finish(int number, Device& device) const {
    constexpr std::int64_t kModules = 2;
    constexpr std::int64_t kOps = 3;
    constexpr std::int64_t kTransfers = 4;
    Plane& plane = device.plane;
    plane.name = fmt::format("/device:TPU:{}", number);
    plane.stats = {{"device_type_string", std::string("Tessera virtual device")},
                   {"peak_teraflops_per_second", traced_.trace().peaks.gflops * 1e-3},
                   {"peak_hbm_bw_gigabytes_per_second", traced_.trace().peaks.gbytes}};
    plane.lines.push_back(step_line(device));
    const auto by_start = [](const Event& a, const Event& b) {
      return std::pair(a.start_ns, b.end_ns) < std::pair(b.start_ns, a.end_ns);
    };
    for (std::vector<Event>* events : {&device.modules, &device.transfers}) {
      std::sort(events->begin(), events->end(), by_start);
    }
    plane.lines.push_back({"XLA Modules", kModules, std::move(device.modules)});
    plane.lines.push_back({"XLA Ops", kOps, one_by_one(device.ops)});
    if (!device.transfers.empty()) {
      plane.lines.push_back({"Transfers", kTransfers, std::move(device.transfers)});
    }
    return std::move(plane);
  }

  Line step_line(Device& device) const {
    Line line{"Steps", 1, {}};
    for (const StepTime& step : traced_.steps()) {
      line.events.push_back(
          event(device.kind_named(std::to_string(step.number)), {step.start_ns, step.end_ns}));
    }
    return line;
  }

  const Traced& traced_;
  Holders holders_;
  std::map<int, Device> devices_;
  std::map<const Program*, std::vector<Transfer>> transfers_;
  std::int64_t num_arrows_ = 0;
};

}  // namespace

std::vector<Plane> device_planes(const Traced& traced) { return DeviceRows(traced).make(); }

}  // namespace tessera::profile
