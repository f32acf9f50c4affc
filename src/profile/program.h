// What a compiled program consists of, by the names that a profile shows.
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

/// A compiled function that ran while it was traced.
struct TracedProgram {
  std::string name;  // train_step
  std::shared_ptr<const run::Executable> executable;
  /// Per input and output: the path of the parameter that it is, or nothing.
  std::vector<std::string> input_paths;
  std::vector<std::string> output_paths;
};

/// An instruction; numbers are of one device.
struct Op {
  std::string name;    // Dense_0.dot_general.12: the instruction of the HLO module
  std::string path;    // Dense_0/dot_general
  std::string opcode;  // of HLO
  std::string category;
  Span where = {};
  std::int64_t flops = 0;
  std::int64_t bytes_read = 0;
  std::int64_t bytes_written = 0;
  std::uint64_t symbol = 0;  // unlike those of the program's other ops; not 0
};

/// An executable in a place: one that several places share has ops of each of them.
struct Computation {
  std::string name;
  const run::Executable* executable;
  const ir::Function* source;        // nullptr for copies around loops
  std::vector<Layout> layouts = {};  // per value of the source
  static constexpr std::size_t kInput = ~std::size_t{0};
  std::vector<std::size_t> definitions = {};  // per value: its equation, or kInput
  std::vector<std::string> modules = {};      // per equation
  std::vector<Op> ops = {};                   // per instruction
  /// Per task and executable nested in it.
  std::map<std::pair<std::uint32_t, const run::Executable*>, Computation*> nested = {};

  /// What one device holds of a value, at most.
  Type local_type(ir::ValueId id) const;
};

/// Whose parameters the equations work on. A path ends at a module: `blocks_0/Dense_0`.
struct Modules {
  std::vector<std::string> derived;    // per value: made of parameters of this module alone
  std::vector<std::string> reaches;    // per value: read for a new parameter of it alone
  std::vector<std::string> equations;  // per equation
};
/// An equation belongs to the module whose parameters it reads; to their common parents where there
/// are several. One that reads none belongs to the module for whose new parameters alone its result
/// is read and, if there is none, to that of the newest value that it reads.
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
  /// Nested ones before those around them.
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

/// The opcode of HLO for an op, `custom-call` where there is none.
std::string hlo_opcode(const ir::Equation& equation);
bool is_view(const ir::Equation& equation);

}  // namespace tessera::profile
