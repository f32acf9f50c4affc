// The parts of a compiled program, with the names that a profile shows.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "ir/ir.h"
#include "mesh/sharding.h"
#include "run/executable.h"

namespace tessera::profile {

/// A compiled function that ran while the trace was recorded.
struct TracedProgram {
  std::string name;  // train_step
  std::shared_ptr<const run::Executable> executable;
  /// Per input and per output: the path of its parameter; empty if it is not a parameter.
  std::vector<std::string> input_paths;
  std::vector<std::string> output_paths;
};

/// An instruction of an executable. FLOPs and bytes are those of one device.
struct Op {
  std::string name;    // Dense_0.dot_general.12: the instruction of the HLO module
  std::string path;    // Dense_0/dot_general
  std::string opcode;  // of HLO
  std::string category;
  Span where = {};
  std::int64_t flops = 0;
  std::int64_t bytes_read = 0;
  std::int64_t bytes_written = 0;
  std::uint64_t symbol = 0;  // unique in the program; not 0
};

/// An executable with the parameters that it works on. An executable that is used with several sets
/// of parameters has one Computation for each set, with ops of its own.
struct Computation {
  std::string name;
  const run::Executable* executable;
  const ir::Function* source;        // nullptr for the copies around loops
  std::vector<Layout> layouts = {};  // per value of the source
  static constexpr std::size_t kInput = ~std::size_t{0};
  std::vector<std::size_t> definitions = {};  // per value: its equation, or kInput
  std::vector<std::string> modules = {};      // per equation
  std::vector<Op> ops = {};                   // per instruction
  /// By task and by the nested executable that the task runs.
  std::map<std::pair<std::uint32_t, const run::Executable*>, Computation*> nested = {};

  /// The type of the largest tile that a device holds of a value.
  Type local_type(ir::ValueId id) const;
};

/// The modules that values and equations belong to, as paths like `blocks_0/Dense_0`; empty if
/// there is none.
struct Modules {
  std::vector<std::string> derived;    // per value: computed from parameters of this module alone
  std::vector<std::string> reaches;    // per value: used for new parameters of this module alone
  std::vector<std::string> equations;  // per equation
};
/// An equation belongs to the module whose parameters it reads, or to the common parent of several
/// such modules. If it reads no parameters, it belongs to the module whose new parameters are the
/// only outputs computed from its result. If there is no such module, it belongs to the module of
/// the newest operand that has one. `inputs` and `outputs`: the modules of the function's inputs
/// and outputs.
Modules find_modules(const ir::Function& function, const std::vector<std::string>& inputs,
                     const std::vector<std::string>& outputs);
std::string common_parent(const std::string& a, const std::string& b);

class Program {
 public:
  Program(const TracedProgram& traced, std::uint64_t id);

  const std::string& name() const { return traced_.name; }
  std::uint64_t id() const { return id_; }
  /// `train_step(7)`
  std::string title() const { return traced_.name + "(" + std::to_string(id_) + ")"; }
  const Computation& root() const { return *root_; }
  /// Nested computations come before those that contain them.
  const std::vector<std::unique_ptr<Computation>>& computations() const { return computations_; }
  const TracedProgram& traced() const { return traced_; }

 private:
  using Key =
      std::tuple<const run::Executable*, std::vector<std::string>, std::vector<std::string>>;

  Computation* build(const run::Executable& executable, const std::vector<std::string>& inputs,
                     const std::vector<std::string>& outputs);
  Computation* build_body(const run::Executable& inner, const ir::Equation& equation,
                          const Modules& modules);
  void add_nested(Computation& computation, const Modules& modules);
  void add_ops(Computation& computation, const Modules& modules);

  TracedProgram traced_;
  std::uint64_t id_;
  std::uint64_t num_ops_ = 0;
  std::vector<std::unique_ptr<Computation>> computations_;
  std::map<Key, Computation*> known_;
  Computation* root_;
};

/// The HLO opcode of the equation's op; `custom-call` if HLO has none.
std::string hlo_opcode(const ir::Equation& equation);

}  // namespace tessera::profile
