// Lowers nodes of equations to kernels on tiles.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include <tessera/error.h>

#include "compile/compile.h"
#include "compile/host/fuse/fuse.h"
#include "compile/host/kernel_pool.h"
#include "compile/host/kernels/elementwise/elementwise.h"
#include "compile/host/kernels/reduce.h"
#include "compile/host/program.h"
#include "ops/control/mpmd.h"
#include "run/target.h"
#include "run/transport/transport.h"

namespace tessera::compile::host {

/// How a process of one group of devices reaches the processes of other groups.
struct BetweenGroups {
  run::Transport* transport = nullptr;
  int group = 0;  // its own
};

struct LowerOptions {
  run::Target target = {};       ///< as in CompileOptions
  std::vector<int> phases = {};  ///< as for fuse()
  /// As in CompileOptions; empty: no result reuses the buffers of an input.
  std::vector<int> output_alias = {};
  DotUnit dot_unit = DotUnit::portable;
  BodyPool* bodies = nullptr;      ///< needed for functions with nested ones
  ops::Groups groups = {};         ///< of a function with tasks
  BetweenGroups between = {};      ///< with a transport and groups
  std::vector<bool> is_here = {};  ///< as in HostProgram
};

/// Ops that do not read array operands element by element: iota, random_bits of one key.
bool is_generator(const Function& function, const Equation& equation);
/// Kernels that read their operands as dense row-major tiles.
bool reads_dense(const Equation& equation);
/// The dtypes in which a kernel computes. It gets operands of narrower dtypes in a wider dtype, and
/// returns the wider dtype.
enum class Arithmetic : std::uint8_t {
  any,       // it moves elements, or has code for every dtype
  bf16,      // 32 and 64 bits, and bf16
  integers,  // all except f16 and bf16
  wide,      // 32 and 64 bits
};
Arithmetic arithmetic_of(const Equation& equation);
bool computes_f64(const Equation& equation);

/// Converts a tile of the operand of a view to a tile of its result. The boxes are those of the
/// tiles.
StridedTile apply_view(const Function& function, const Equation& view, StridedTile from,
                       const Box& from_box, const Box& to_box);

/// Where a collective finds the elements of an operand: in the value that precedes all collectives
/// merged with it.
struct Origin {
  ValueId value;
  const Equation* sum = nullptr;  // the last of these that reduces, with the atoms of all of them
};

/// What lowerings can ask about values and tiles.
class LowerContext {
 public:
  /// `program` has the function, the layouts and the devices; its instructions are not used.
  LowerContext(const HostProgram& program, const Fusion& fusion, KernelPool& pool,
               const LowerOptions& options)
      : program_(program),
        pool_(pool),
        function_(*program.function),
        fusion_(fusion),
        layouts_(program.layouts),
        options_(options),
        atoms_(atoms_of(function_.mesh)),
        uses_(ir::count_uses(function_)),
        tiles_written_(function_.values.size(), 0) {
    for (ValueId id = 0; id < origins_.size(); ++id) origins_[id] = {.value = id};
    if (transport() == nullptr && options.groups.count == 0) join_collectives();
    find_sums();
    for (std::size_t i = 0; i < options.output_alias.size(); ++i) {
      if (options.output_alias[i] < 0) continue;
      overwritten_[function_.outputs[i]] =
          function_.inputs[static_cast<std::size_t>(options.output_alias[i])];
    }
  }

  const Function& function() const { return function_; }
  const Fusion& fusion() const { return fusion_; }
  KernelPool& pool() const { return pool_; }
  const Layout& layout(ValueId id) const { return layouts_[id]; }
  /// The tiles of a value that are computed, ascending: those of the devices of this process.
  std::vector<std::int64_t> tiles(ValueId id) const { return program_.tiles(id); }
  /// nullptr if this process computes for all devices.
  run::Transport* transport() const { return options_.target.world.transport; }
  /// The devices of the processes; only with a transport.
  const Blocks& blocks() const { return *program_.blocks; }
  const run::Target& target() const { return options_.target; }
  int num_workers() const { return options_.target.num_workers; }
  const BetweenGroups& between() const { return options_.between; }
  BodyPool& bodies() const {
    require(options_.bodies != nullptr, "nested functions are compiled into a pool");
    return *options_.bodies;
  }
  /// The unit that multiplies bf16.
  DotUnit dot_unit() const { return program_.dot_unit; }
  /// The index range of `value` for the digits of a result tile.
  Box box(ValueId value, const AtomDigits& digits) const;
  /// Equal for two tiles of an equation only if they can share a kernel. It has the sizes of all
  /// operand boxes, and also their starts if grains differ from shard to shard.
  std::vector<std::int64_t> extents_key(const Equation& equation, const AtomDigits& digits) const;
  /// Whether the result of a collective is never made: its only reader is a collective that reads
  /// the elements directly from where this collective would read them.
  bool is_joined(ValueId result) const { return origins_[result].value != result; }
  /// Whether the equation is one of several merged collectives.
  bool joins(const Equation& equation) const;
  Origin origin(const Equation& collective, std::size_t operand) const;
  /// The operand with the same number, of the equation that makes this result.
  ValueId operand_for(ValueId result) const;
  /// Whether the value is stored and used by a single operand.
  bool is_held_for_one(ValueId value) const;
  /// The sum over devices that is the only use of a partial value.
  /// The equation that makes the value may write the sum directly: into the tile of the sum if that
  /// is as large as the value, otherwise into the first summand, leaving the others unwritten.
  std::optional<ValueId> sum_of(ValueId partial) const { return sums_[partial]; }
  bool is_summed(ValueId partial) const {
    return is_computed(partial) && tiles_written_[partial] < std::ssize(tiles(partial));
  }
  /// The digits of the tiles of a partial value that are added into the tile with these digits, in
  /// the order of the sum.
  std::vector<AtomDigits> summands(ValueId partial, ValueId sum, const AtomDigits& digits) const;
  /// The summands among them that this process computes.
  std::vector<AtomDigits> own_summands(ValueId partial, ValueId sum,
                                       const AtomDigits& digits) const;
  /// Whether other processes have summands too. Then the equation that makes the value does not
  /// write the tile of the sum, but may add up the summands of this process.
  bool is_sum_shared(ValueId partial) const { return is_sum_shared_[partial]; }
  /// Whether an earlier instruction has already written a value that is the result of a later one.
  bool is_computed(ValueId value) const { return tiles_written_[value] > 0; }
  void set_computed(const HostInstruction& instruction);
  /// The donated input whose buffers a result may reuse.
  std::optional<ValueId> overwritten(ValueId result) const { return overwritten_[result]; }
  /// Where to read the range box(value, digits): buffer, offset and strides after all views.
  StridedTile read(ValueId value, const AtomDigits& digits) const;
  /// The task, reading and writing the tiles for these digits.
  TileTask task_at(TileTask task, const AtomDigits& digits) const;
  /// Like read() of the result of a view, whether or not it is stored.
  StridedTile read_through(const Equation& view, const AtomDigits& digits) const;

 private:
  std::optional<Origin> origin_past(ValueId between, const Equation& reader, ValueId result) const;
  void join_collectives();
  void find_sums();

  const HostProgram& program_;
  KernelPool& pool_;
  const Function& function_;
  const Fusion& fusion_;
  const std::vector<Layout>& layouts_;
  const LowerOptions& options_;
  std::vector<Atom> atoms_;  // of the mesh
  std::vector<int> uses_;    // per value
  std::vector<Origin> origins_ = std::vector<Origin>(function_.values.size());
  std::vector<std::optional<ValueId>> sums_ =
      std::vector<std::optional<ValueId>>(function_.values.size());
  std::vector<bool> is_sum_shared_ = std::vector<bool>(function_.values.size(), false);
  std::vector<std::int64_t> tiles_written_;
  std::vector<std::optional<ValueId>> overwritten_ =
      std::vector<std::optional<ValueId>>(function_.values.size());
};

/// Whether the equation is a collective that reduces partial values.
bool is_reducing(const Equation& equation);
/// The partial atoms that a reduction sums over. Others stay partial in its result.
AtomList resolved_atoms(const Layout& partial, const Layout& sum);
/// All digits along `along`, in row-major order; the others are those of `base`.
std::vector<AtomDigits> digits_along(const std::vector<Atom>& atoms, const AtomList& along,
                                     const AtomDigits& base);

/// A box of the result of a move, whose elements are at indices larger by `offset` in the operand.
struct MovedBox {
  Box to;
  std::vector<std::int64_t> offset;

  /// The part of `result` that it fills from `source`, as indices of the result.
  Box part(const Box& result, const Box& source) const;
  Box source_of(Box part) const;
};
/// All boxes of a move of an array of this shape: one, unless the equation permutes slices.
std::vector<MovedBox> moved_boxes(const Equation& equation, const Shape& shape);

/// The element type in registers for values of `dtype`: f16 and bf16 are computed as f32.
DType lane_dtype(DType dtype);
/// Whether the kernel of an elementwise equation returns f32 numbers that still have to be rounded
/// to the f16 or bf16 result of the equation.
bool must_round(const Function& function, const Equation& equation);
/// The vector kernel of an elementwise equation: the name from its record with attributes and
/// dtypes filled in.
const kernels::TileKernel* tile_kernel_of(const Function& function, const Equation& equation);

/// The instruction of a node.
HostInstruction lower_region(const LowerContext& context, const Node& node);
HostInstruction lower_kernel(const LowerContext& context, const Equation& equation);
/// The remaining work of a collective that is merged with others.
std::vector<TileTask> lower_joined(const LowerContext& context, const Equation& equation);
/// What a collective moves in groups of `group` devices.
run::CollectiveUse collective_use(const LowerContext& context, const Equation& equation,
                                  std::int64_t group);
/// Lowers a collective of which this process computes only the tiles of its own devices.
HostInstruction lower_exchange(const LowerContext& context, const Equation& equation);
/// The same for Target::runs == false; it has no kernel.
HostInstruction lower_unrun_exchange(const LowerContext& context, const Equation& equation);
/// The largest number of pieces of operand tiles from which a collective makes a tile of its
/// result.
std::int64_t num_sources(const LowerContext& context, const Equation& equation);
/// Whether a collective moves data between processes.
bool crosses_processes(const LowerContext& context, const Equation& equation);
/// Whether, for each tile of result `i` of a reduction, this process gives every reader the sum of
/// all summands that it has: the leaves of one subtree of the summation tree.
bool sends_whole_sums(const LowerContext& context, const Equation& equation, std::size_t i);
/// The end of a transfer in this process: it sends its tiles or receives them.
HostInstruction lower_transfer(const LowerContext& context, const Equation& equation);
kernels::ReduceKind reduce_kind(const Equation& equation);
/// All nodes, in order.
HostProgram lower(const Function& function, const LowerOptions& options = {});

/// How ops whose record says `kernel("name")` are lowered.
struct KernelLowering {
  std::string_view name;
  std::vector<TileTask> (*lower)(const LowerContext&, const Equation&);
  bool reads_dense;  // whether its operands must be dense row-major tiles
  Arithmetic arithmetic = Arithmetic::any;
  bool computes_f64 = true;
};
/// The lowerings of each file, which lower.cc joins.
using Lowerings = std::vector<KernelLowering>;
Lowerings along_lowerings();
Lowerings attention_lowerings();
Lowerings callback_lowerings();
Lowerings control_lowerings();
Lowerings conv_lowerings();
Lowerings cumulative_lowerings();
Lowerings dot_lowerings();
Lowerings dynamic_slice_lowerings();
Lowerings fourier_lowerings();
Lowerings index_lowerings();
Lowerings linalg_lowerings();
Lowerings move_lowerings();
Lowerings reduce_lowerings();
Lowerings reduce_prod_lowerings();
Lowerings reduce_window_lowerings();
Lowerings scatter_join_lowerings();
Lowerings scatter_lowerings();
Lowerings top_k_lowerings();

}  // namespace tessera::compile::host
