#include "partition/split/price.h"

#include <cmath>

#include "ir/bodies.h"
#include "partition/candidates.h"
#include "partition/moves.h"
#include "partition/reshard/search_reshard.h"

namespace tessera::partition {

namespace {

double price_of_moves(const ir::Function& function, const ir::Equation& equation, MoveKind kind) {
  if (kind == MoveKind::all_slice) return 0;
  double price = kMoveLatency;
  for (std::size_t i = 0; i < equation.operands.size(); ++i) {
    const ir::ValueId from = equation.operands[i];
    price += static_cast<double>(move_size(kind, function.mesh, function.type(from),
                                           function.sharding(from),
                                           function.sharding(equation.results[i]))
                                     .wire_bytes);
  }
  return price;
}

}  // namespace

ProgramPrice price_of_program(const ir::Function& partitioned) {
  const std::vector<Atom> atoms = atoms_of(partitioned.mesh);
  ProgramPrice price;
  for (const ir::Equation& equation : partitioned.equations) {
    const std::vector<const ir::Function*> bodies = bodies_of(equation);
    if (!bodies.empty()) {
      const std::optional<ir::BodyFlow> flow = ir::body_flow(equation);
      const auto count = static_cast<double>(flow ? flow->iterations : 1);
      for (const ir::Function* body : bodies) {
        const ProgramPrice inside = price_of_program(*body);
        price.moved += count * inside.moved;
        price.work += count * inside.work;
      }
    } else if (const auto kind = kind_of(*equation.op)) {
      price.moved += price_of_moves(partitioned, equation, *kind);
    } else if (!equation.results.empty()) {
      const AtomList used = used_atoms(partitioned.sharding(equation.results[0]));
      price.work += work_of(partitioned, equation) / static_cast<double>(num_shards(atoms, used)) /
                    kFlopsPerByte;
    }
  }
  return price;
}

bool is_better(const ProgramPrice& a, const ProgramPrice& b) {
  // The price of work in bytes is only a guess.
  constexpr double kAboutEqual = 0.01;
  const double difference = (a.moved + a.work) - (b.moved + b.work);
  if (std::abs(difference) > kAboutEqual * (b.moved + b.work)) return difference < 0;
  return a.moved < b.moved;
}

}  // namespace tessera::partition
