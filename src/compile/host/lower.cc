#include "compile/host/lower.h"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>

#include <tessera/error.h>

#include "compile/host/orders.h"
#include "ops/ops.h"
#include "ops/rules.h"

namespace tessera::compile::host {

namespace {

constexpr Lowerings (*kFamilies[])() = {
    along_lowerings,   attention_lowerings,   callback_lowerings,      control_lowerings,
    conv_lowerings,    cumulative_lowerings,  dot_lowerings,           dynamic_slice_lowerings,
    fourier_lowerings, index_lowerings,       linalg_lowerings,        move_lowerings,
    reduce_lowerings,  reduce_prod_lowerings, reduce_window_lowerings, scatter_join_lowerings,
    scatter_lowerings, top_k_lowerings,
};

std::size_t joined_hash(std::size_t seed, std::size_t word) {
  return ((seed ^ word) * 0x9e3779b97f4a7c15ULL) ^ (seed >> 29);
}

const KernelLowering& lowering_of(const Equation& equation) {
  static const std::map<std::string_view, KernelLowering> table = [] {
    std::map<std::string_view, KernelLowering> joined;
    for (auto* family : kFamilies) {
      for (const KernelLowering& lowering : family()) {
        require(joined.emplace(lowering.name, lowering).second, "lowerings have distinct names");
      }
    }
    return joined;
  }();
  const auto found = table.find(*equation.op->host);
  require(found != table.end(), "the host compiler has a lowering for every kernel");
  return found->second;
}

}  // namespace

std::size_t KernelKey::hash() const {
  std::size_t seed = words_.size();
  for (std::int64_t word : words_) seed = joined_hash(seed, static_cast<std::size_t>(word));
  return seed;
}

bool KernelPool::is_same_kind(const Equation& a, const Equation& b) const {
  const auto are_same = [&](const std::vector<ValueId>& x, const std::vector<ValueId>& y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), [&](ValueId i, ValueId j) {
      return function_.values[i] == function_.values[j];
    });
  };
  return a.op == b.op && a.attributes == b.attributes && are_same(a.operands, b.operands) &&
         are_same(a.results, b.results);
}

std::int64_t KernelPool::kind_of(const Equation& equation) {
  std::size_t hash = std::bit_cast<std::size_t>(equation.op);
  for (const auto* ids : {&equation.operands, &equation.results}) {
    for (ValueId id : *ids) {
      for (std::int64_t size : function_.type(id).shape) {
        hash = joined_hash(hash, static_cast<std::size_t>(size));
      }
    }
  }
  const auto [begin, end] = kinds_.equal_range(hash);
  auto found = std::find_if(begin, end,
                            [&](const auto& item) { return is_same_kind(*item.second, equation); });
  if (found == end) found = kinds_.emplace(hash, &equation);
  return found->second - function_.equations.data();
}

bool is_generator(const Function& function, const Equation& equation) {
  if (*equation.op->pattern != ops::Pattern::generator) return false;
  // Several keys are read one by one.
  return equation.operands.empty() || function.type(equation.operands[0]).rank() == 1;
}

bool reads_dense(const Equation& equation) { return lowering_of(equation).reads_dense; }
Arithmetic arithmetic_of(const Equation& equation) {
  return *equation.op->pattern == ops::Pattern::opaque ? lowering_of(equation).arithmetic
                                                       : Arithmetic::any;
}

bool computes_f64(const Equation& equation) {
  return *equation.op->pattern != ops::Pattern::opaque || lowering_of(equation).computes_f64;
}

Box LowerContext::box(ValueId value, const AtomDigits& digits) const {
  return layouts_[value].box(digits);
}

std::vector<std::int64_t> LowerContext::extents_key(const Equation& equation,
                                                    const AtomDigits& digits) const {
  std::vector<std::int64_t> key;
  for (ValueId id : equation.operands) {
    const Box range = box(id, digits);
    const Shape& shape = function_.type(id).shape;
    for (std::size_t dim = 0; dim < shape.size(); ++dim) {
      key.push_back(range.size[dim]);
      const bool repeats =
          function_.numerics != Numerics::exact || shape[dim] % function_.grains == 0;
      key.push_back(repeats ? 0 : range.start[dim]);
    }
  }
  return key;
}

TileTask LowerContext::task_at(TileTask task, const AtomDigits& digits) const {
  for (auto* tiles : {&task.reads, &task.writes}) {
    for (TileRef& ref : *tiles) ref.tile = layouts_[ref.value].tile_at(digits);
  }
  return task;
}

StridedTile LowerContext::read(ValueId value, const AtomDigits& digits) const {
  if (fusion_.is_view[value]) {
    return read_through(function_.equations[fusion_.definition[value]], digits);
  }
  require(fusion_.needs_buffer[value], "only values with memory are read");
  const Layout& layout = layouts_[value];
  return {.tile = {value, layout.tile_at(digits)},
          .offset = 0,
          .strides = strides_in_memory(function_, fusion_, value, layout.tile_shape(digits))};
}

StridedTile LowerContext::read_through(const Equation& view, const AtomDigits& digits) const {
  const ValueId from = view.operands[0];
  return apply_view(function_, view, read(from, digits), box(from, digits),
                    box(view.results[0], digits));
}

StridedTile apply_view(const Function& function, const Equation& equation, StridedTile from,
                       const Box& from_box, const Box& to_box) {
  const std::string& view = *equation.op->host;
  StridedTile to{.tile = from.tile, .offset = from.offset, .strides = {}};
  if (view == "bitcast" || view == "pad" || view == "sharding_constraint" ||
      view == "stop_gradient" || view == "transfer") {
    to.strides = from.strides;
  } else if (view == "reshape") {
    to.strides = row_major_strides(to_box.size);
  } else if (view == "transpose") {
    for (std::int64_t dim : equation.attributes.ints("permutation")) {
      to.strides.push_back(from.strides[static_cast<std::size_t>(dim)]);
    }
  } else if (view == "broadcast_in_dim") {
    const ir::Ints& dims = equation.attributes.ints("dims");
    const Shape& shape = function.type(equation.operands[0]).shape;
    to.strides.assign(to_box.size.size(), 0);
    for (std::size_t i = 0; i < dims.size(); ++i) {
      if (shape[i] != 1) to.strides[static_cast<std::size_t>(dims[i])] = from.strides[i];
    }
  } else if (view == "slice") {
    to.strides = from.strides;
    for (std::size_t dim = 0; dim < to.strides.size(); ++dim) {
      // The tile of the operand may be the window that this tile reads.
      const std::int64_t stride = equation.attributes.ints("stride")[dim];
      const std::int64_t first =
          equation.attributes.ints("start")[dim] + to_box.start[dim] * stride;
      to.offset += (first - from_box.start[dim]) * from.strides[dim];
      to.strides[dim] *= stride;
    }
  } else {
    require(view == "reverse", "a view is one of the known kinds");
    to.strides = from.strides;
    for (std::int64_t dim : equation.attributes.ints("dims")) {
      const auto d = static_cast<std::size_t>(dim);
      to.offset += (from_box.size[d] - 1) * from.strides[d];
      to.strides[d] = -from.strides[d];
    }
  }
  return to;
}

namespace {

/// The bytes of the largest tile of a value.
std::int64_t largest_tile(const LowerContext& context, ValueId value) {
  const Layout& layout = context.layout(value);
  return size_bytes(Type{context.function().type(value).dtype, layout.max_tile_shape()});
}

/// Whether the slices that the equation permutes are on several devices.
bool permutes_shards(const LowerContext& context, const Equation& equation) {
  const Function& f = context.function();
  const ops::Factors factors = (*equation.op->factors)(
      equation.attributes, operand_types(f, equation), result_types(f, equation));
  const std::vector<std::size_t> dims = ops::permuted_dims(factors);
  return std::any_of(dims.begin(), dims.end(), [&](std::size_t dim) {
    return context.layout(equation.operands[0]).num_shards_of(dim) > 1;
  });
}

/// Whether data moves between devices. An all_slice moves none.
bool is_collective(const LowerContext& context, const Equation& equation) {
  if (is_reducing(equation)) return true;
  if (*equation.op->host != "move" || ops::is(equation, ops::all_slice_op)) return false;
  return !equation.attributes.has("sources") || permutes_shards(context, equation);
}

/// What a collective moves, computed from the tiles that its tasks actually read.
std::vector<run::CollectiveUse> collectives_of(const LowerContext& context,
                                               const Equation& equation,
                                               const std::vector<TileTask>& tasks) {
  if (!is_collective(context, equation)) return {};
  std::int64_t group = 1;
  if (is_reducing(equation)) {
    for (std::size_t i = 0; i < equation.operands.size(); ++i) {
      const AtomDigits first = context.layout(equation.results[i]).digits(0);
      const auto summands = context.summands(equation.operands[i], equation.results[i], first);
      group = std::max(group, static_cast<std::int64_t>(summands.size()));
    }
  } else if (context.transport() != nullptr) {
    group = num_sources(context, equation);  // the tasks cover only this process's devices
  }
  // If a dimension has fewer elements than shards, tiles may be empty and read nothing.
  for (const TileTask& task : tasks) {
    group = std::max(group, static_cast<std::int64_t>(task.reads.size()));
  }
  return {collective_use(context, equation, group)};
}

}  // namespace

run::CollectiveUse collective_use(const LowerContext& context, const Equation& equation,
                                  std::int64_t group) {
  run::CollectiveUse use{.kind = *equation.op->name, .bytes = 0, .wire_bytes = 0};
  const bool is_halo = ops::is(equation, ops::halo_exchange_op);
  const bool grows = ops::is(equation, ops::all_gather_op) || is_halo;
  for (ValueId id : grows ? equation.results : equation.operands) {
    use.bytes += largest_tile(context, id);
  }
  if (is_halo) {
    const ValueId from = equation.operands[0];
    const std::int64_t received = most_received(context.function().mesh, context.layout(from),
                                                context.layout(equation.results[0]));
    use.wire_bytes = size_bytes(Type{context.function().type(from).dtype, {received}});
    return use;
  }
  const bool moves_all = ops::is(equation, ops::collective_permute_op) ||
                         ops::is(equation, ops::permute_op) || ops::is(equation, ops::transfer_op);
  const std::int64_t others = moves_all ? group : group - 1;
  use.wire_bytes = use.bytes * others / group * (ops::is(equation, ops::all_reduce_op) ? 2 : 1);
  return use;
}

HostInstruction lower_kernel(const LowerContext& context, const Equation& equation) {
  if (context.transport() != nullptr && is_collective(context, equation) &&
      crosses_processes(context, equation)) {
    return lower_exchange(context, equation);
  }
  HostInstruction instruction;
  instruction.info.name = *equation.op->name;
  instruction.info.span = equation.span;
  instruction.tasks = lowering_of(equation).lower(context, equation);
  instruction.info.collectives = collectives_of(context, equation, instruction.tasks);
  if (context.joins(equation)) instruction.tasks = lower_joined(context, equation);
  return instruction;
}

namespace {

/// A collective without any work left is counted in the instruction that did its work.
void add(HostProgram& program, HostInstruction added) {
  HostInstruction& instruction = program.instructions.emplace_back(std::move(added));
  if (!instruction.tasks.empty() || instruction.info.collectives.empty()) return;
  const auto worker =
      std::find_if(program.instructions.rbegin(), program.instructions.rend(),
                   [](const HostInstruction& other) { return !other.tasks.empty(); });
  require(worker != program.instructions.rend(),
          "the work of a collective is in an earlier instruction");
  auto& counted = worker->info.collectives;
  counted.insert(counted.end(), instruction.info.collectives.begin(),
                 instruction.info.collectives.end());
  instruction.info.collectives.clear();
}

/// Lowers the nodes of a function one after the other.
class Lowering {
 public:
  Lowering(HostProgram& program, const Fusion& fusion, const LowerOptions& options)
      : program_(program),
        options_(options),
        fusion_(fusion),
        pool_(*program.function),
        context_(program, fusion, pool_, options),
        uses_(ir::count_uses(*program.function)),
        is_counted_(program.function->values.size(), false),
        made_(program.function->values.size(), 0) {}

  void run() {
    for (const Node& node : fusion_.nodes) {
      const Equation& equation = program_.function->equations[node.equations[0]];
      if (node.equations.size() == 1 && writes_directly(equation)) continue;
      HostInstruction instruction = lower_node(node, equation);
      instruction.info.equations.assign(node.equations.begin(), node.equations.end());
      if (program_.groups.count > 0) set_group(instruction, node.equations[0]);
      for (const std::size_t index : node.equations) {
        for (const ValueId id : program_.function->equations[index].results)
          made_[id] = program_.instructions.size();
      }
      for (std::size_t i = 0; i < equation.results.size(); ++i) note_unmade(equation, i);
      context_.set_computed(instruction);
      if (context_.joins(equation)) hand_on(instruction, equation);
      add(program_, std::move(instruction));
    }
  }

 private:
  /// The product whose elements are, in the order in which it writes them, the result of this
  /// reshape or transpose, if nothing else reads it; otherwise kNoValue.
  ValueId product_behind(const Equation& equation) const {
    const std::string& view = *equation.op->host;
    if (view != "reshape" && view != "transpose") return ir::kNoValue;
    const ValueId result = equation.results[0];
    ValueId id = equation.operands[0];
    const auto [base, kind] = fusion_.readings[id];
    const bool is_in_order =
        view == "reshape" ? kind == Reading::Kind::same : fusion_.lies_as[id] == result;
    for (; id != base; id = program_.function->equations[fusion_.definition[id]].operands[0]) {
      if (uses_[id] != 1) return ir::kNoValue;
    }
    if (!is_in_order || uses_[base] != 1 || fusion_.definition[base] == kNoEquation)
      return ir::kNoValue;
    const Equation& product = program_.function->equations[fusion_.definition[base]];
    const bool is_product = *product.op->host == "conv" || *product.op->host == "dot_general";
    const bool is_whole =
        context_.layout(base).num_tiles() == 1 && context_.layout(result).num_tiles() == 1;
    return is_product && is_whole && !context_.sum_of(base) ? base : ir::kNoValue;
  }

  /// Whether a product directly writes the result of the equation, which is a copy of the product's
  /// result. Only outputs that are views of a product are such copies.
  bool writes_directly(const Equation& equation) {
    const bool is_alone =
        context_.transport() == nullptr && program_.groups.count == 0 && !program_.own_group;
    if (!is_alone || equation.results.size() != 1) return false;
    const ValueId result = equation.results[0];
    const ValueId product = product_behind(equation);
    if (product == ir::kNoValue || context_.overwritten(result)) return false;
    for (TileTask& task : program_.instructions[made_[product]].tasks) {
      for (TileRef& write : task.writes) {
        if (write.value == product) write.value = result;
      }
    }
    made_[result] = made_[product];
    return true;
  }

  /// The last of several merged collectives counts what all of them move.
  void hand_on(HostInstruction& instruction, const Equation& equation) {
    auto& uses = instruction.info.collectives;
    uses.insert(uses.begin(), handed_on_.begin(), handed_on_.end());
    handed_on_.clear();
    if (instruction.tasks.empty() && context_.is_joined(equation.results[0])) uses.swap(handed_on_);
  }

  /// Notes the values that precede a result which was written early, or whose collective is merged
  /// with others.
  void note_unmade(const Equation& equation, std::size_t i) {
    const ValueId result = equation.results[i];
    const bool is_ahead = context_.is_computed(result);
    if (i >= equation.operands.size() || context_.is_joined(result)) return;
    ValueId id = equation.operands[i];
    if (!is_ahead && !context_.is_joined(id)) return;
    const ValueId origin = context_.origin(equation, i).value;
    const bool is_only_for_this = is_ahead || context_.is_held_for_one(origin);
    const ValueId instead = !is_only_for_this ? ir::kNoValue : is_ahead ? result : origin;
    std::size_t last = program_.instructions.size();
    for (; context_.is_joined(id); id = context_.operand_for(id)) {
      program_.unmade.push_back({id, made_[id], last, instead, is_ahead});
      last = made_[id];
    }
    if (is_ahead) program_.unmade.push_back({id, made_[id], last, instead, is_ahead});
  }

  bool is_moved(const Equation& equation) const {
    return options_.between.transport != nullptr && ops::is_transfer(equation);
  }

  HostInstruction lower_node(const Node& node, const Equation& equation) const {
    if (is_moved(equation)) return lower_transfer(context_, equation);
    return node.is_region ? lower_region(context_, node) : lower_kernel(context_, equation);
  }

  /// A group computes in order; its exchanges with other groups have a separate order.
  void set_group(HostInstruction& instruction, std::size_t index) {
    const Equation& equation = program_.function->equations[index];
    instruction.info.group = options_.groups.of_equation[index];
    instruction.chain = instruction.info.group;
    if (is_moved(equation)) {
      instruction.info.group = options_.between.group;
      instruction.chain = program_.groups.count;
      return;
    }
    if (ops::is_task(equation)) {
      const ops::TaskParts parts = ops::task_parts(equation);
      instruction.info.name = parts.name;
      instruction.info.stage = static_cast<int>(parts.stage);
      instruction.info.microbatch = static_cast<int>(parts.microbatch);
      instruction.info.is_task = true;
    }
    if (options_.between.transport != nullptr) return;
    if (ops::is_transfer(equation)) count_transfer(instruction, equation);
    for (ValueId id : equation.operands) count_transfers(instruction, id);
  }

  /// Separate devices would receive by transfers what is read here. Each transfer is counted once.
  void count_transfers(HostInstruction& instruction, ValueId id) {
    while (fusion_.is_view[id]) {
      const Equation& view = program_.function->equations[fusion_.definition[id]];
      if (ops::is_transfer(view)) count_transfer(instruction, view);
      id = view.operands[0];
    }
  }

  void count_transfer(HostInstruction& instruction, const Equation& transfer) {
    const ValueId result = transfer.results[0];
    if (is_counted_[result]) return;
    is_counted_[result] = true;
    instruction.info.collectives.push_back(collective_use(context_, transfer, 1));
  }

  HostProgram& program_;
  const LowerOptions& options_;
  const Fusion& fusion_;
  KernelPool pool_;
  LowerContext context_;
  std::vector<int> uses_;                           // per value
  std::vector<bool> is_counted_;                    // per result of a transfer
  std::vector<run::CollectiveUse> handed_on_ = {};  // of collectives whose work a later one does
  std::vector<std::size_t> made_;                   // per value: the instruction that makes it
};

}  // namespace

HostProgram lower(const Function& function, const LowerOptions& options) {
  run::Transport* const transport = options.target.world.transport;
  HostProgram program{.function = &function, .layouts = layouts_of(function), .instructions = {}};
  program.dot_unit = options.dot_unit;
  program.groups = options.groups;
  program.is_here = options.is_here;
  if (options.between.transport != nullptr) program.own_group = options.between.group;
  if (transport != nullptr) {
    program.blocks = std::make_shared<const Blocks>(function.mesh, transport->size());
    program.rank = transport->rank();
  }
  const Fusion fusion = fuse(function, options.phases, options.between.transport != nullptr,
                             options.target.num_workers);
  Lowering(program, fusion, options).run();
  return program;
}

std::vector<std::int64_t> HostProgram::tiles(ValueId value) const {
  if (!is_here.empty() && !is_here[value]) return {};
  if (blocks != nullptr) return blocks->tiles(rank, layouts[value]);
  std::vector<std::int64_t> all(static_cast<std::size_t>(layouts[value].num_tiles()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::vector<Layout> layouts_of(const Function& function) {
  const auto atoms = std::make_shared<const std::vector<Atom>>(atoms_of(function.mesh));
  std::vector<Layout> layouts;
  layouts.reserve(function.values.size());
  for (const ir::Value& value : function.values) {
    require(value.sharding.has_value(), "the host compiler gets a partitioned function");
    layouts.emplace_back(atoms, *value.sharding, value.type.shape);
  }
  return layouts;
}

std::int64_t tile_bytes(const Function& function, const Layout& layout, ValueId value,
                        std::int64_t tile) {
  const auto element = static_cast<std::int64_t>(size_bytes(function.type(value).dtype));
  return layout.tile_elements(tile) * element;
}

}  // namespace tessera::compile::host
