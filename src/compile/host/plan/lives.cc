#include "compile/host/plan/lives.h"

#include <algorithm>

namespace tessera::compile::host {

Lives::Lives(const HostProgram& program) : program_(program) {
  const Function& f = *program.function;
  first_tile_.push_back(0);
  for (ValueId id = 0; id < f.values.size(); ++id) {
    const std::int64_t count = program.layouts[id].num_tiles();
    for (std::int64_t tile = 0; tile < count; ++tile) {
      lives_.push_back({.bytes = tile_bytes(f, program.layouts[id], id, tile)});
    }
    first_tile_.push_back(first_tile_.back() + static_cast<std::size_t>(count));
  }
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    for (const TileTask& task : program.instructions[i].tasks) {
      for (const TileRef& ref : task.writes) {
        lives_[number(ref)].begin = i;
        lives_[number(ref)].end = std::max(lives_[number(ref)].end, i);
      }
      for (const TileRef& ref : task.reads) {
        lives_[number(ref)].end = std::max(lives_[number(ref)].end, i);
      }
    }
  }
}

std::vector<std::int64_t> Lives::bytes_of(ValueId value) const {
  std::vector<std::int64_t> bytes;
  for (std::int64_t tile : program_.tiles(value)) bytes.push_back((*this)[{value, tile}].bytes);
  return bytes;
}

bool Lives::shares_in_place(const TileRef& write, const TileRef& read) const {
  for (const TileTask& task : program_.instructions[(*this)[write].begin].tasks) {
    const bool writes =
        std::find(task.writes.begin(), task.writes.end(), write) != task.writes.end();
    const bool reads = std::find(task.reads.begin(), task.reads.end(), read) != task.reads.end();
    if (!writes && !reads) continue;
    if (writes != reads) return false;
    // Another operand may read elements that have already been overwritten.
    if (std::count(task.reads.begin(), task.reads.end(), read) != 1) return false;
    const bool may =
        std::any_of(task.may_share.begin(), task.may_share.end(), [&](const auto& pair) {
          return task.writes[pair.first] == write && task.reads[pair.second] == read;
        });
    if (!may) return false;
  }
  return true;
}

bool Lives::may_follow(ValueId next, ValueId value) const {
  if (bytes_of(next) != bytes_of(value)) return false;
  for (std::int64_t tile : program_.tiles(next)) {
    const Life& from = (*this)[{value, tile}];
    const Life& to = (*this)[{next, tile}];
    if (from.end > to.begin) return false;
    if (from.end == to.begin && !shares_in_place({next, tile}, {value, tile})) return false;
  }
  return true;
}

namespace {

/// The value all of whose tiles may be overwritten by the tasks that write `next`; kNoValue if
/// there is none.
ValueId overwritten_by(const HostProgram& program, const Lives& lives, ValueId next,
                       const std::vector<bool>& is_port) {
  const std::vector<std::int64_t> tiles = program.tiles(next);
  if (tiles.empty()) return ir::kNoValue;
  const TileRef first{next, tiles[0]};
  for (const TileTask& task : program.instructions[lives[first].begin].tasks) {
    for (const auto& [write, read] : task.may_share) {
      const ValueId value = task.reads[read].value;
      if (task.writes[write] != first || is_port[value]) continue;
      const bool is_overwritten = lives.may_follow(next, value) &&
                                  std::all_of(tiles.begin(), tiles.end(), [&](std::int64_t tile) {
                                    return lives.shares_in_place({next, tile}, {value, tile});
                                  });
      if (is_overwritten) return value;
    }
  }
  return ir::kNoValue;
}

}  // namespace

PortValues values_in_ports(const HostProgram& program, const Lives& lives,
                           const std::vector<int>& alias) {
  const Function& f = *program.function;
  PortValues found{.port = std::vector<int>(f.values.size(), -1),
                   .before = std::vector<ValueId>(f.values.size(), ir::kNoValue)};
  std::vector<bool> is_port(f.values.size(), false);
  for (const auto* ports : {&f.inputs, &f.outputs}) {
    for (const ValueId id : *ports) is_port[id] = true;
  }
  for (std::size_t i = 0; i < f.outputs.size(); ++i) {
    const ValueId donated =
        alias[i] >= 0 ? f.inputs[static_cast<std::size_t>(alias[i])] : ir::kNoValue;
    ValueId next = f.outputs[i];
    if (next == donated) continue;
    while (true) {
      const ValueId value = overwritten_by(program, lives, next, is_port);
      if (value == ir::kNoValue) break;
      if (donated != ir::kNoValue && !lives.may_follow(value, donated)) break;
      found.port[value] = static_cast<int>(i);
      found.before[next] = value;
      is_port[value] = true;
      next = value;
    }
    found.before[next] = donated;
  }
  return found;
}

}  // namespace tessera::compile::host
