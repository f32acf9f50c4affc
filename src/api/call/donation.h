// Donated arguments of a call. If the call throws before its program starts to run, the arrays stay
// unchanged.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "api/program.h"
#include "run/devices/backend.h"

namespace tessera::detail {

/// A call to which arrays were donated.
struct DonatingCall {
  std::shared_ptr<const std::vector<std::string>> paths;  // of all arguments' leaves
  Span where;
  std::atomic<bool> has_failed = false;
};

/// The donated arguments of one call.
class Donation {
 public:
  /// For a call without donated arguments.
  Donation() = default;
  /// Throws UserError if an array is donated twice. Does not change any array yet.
  Donation(const Program& program, const Walk& arguments, const Span& where);

  /// Runs the program; `inputs` are the tiles of all its inputs. Donated arrays are given away when
  /// it starts. An exception before that leaves them unchanged. If the program fails after it has
  /// started, the RuntimeFault names the arrays that are lost.
  std::vector<run::Tiles> run(const run::Runnable& program, std::vector<run::Tiles> inputs);
  /// Gives the arrays away when no program is run.
  void give_away();

 private:
  struct Gift {
    std::shared_ptr<ArrayNode> node;
    std::size_t leaf;
    std::vector<std::ptrdiff_t> lent;  // per tile of the node: which tile of the input it is, or -1
  };
  void take(std::vector<run::Tiles>& inputs);
  void give_back(const std::vector<run::Tiles>& inputs) noexcept;
  void let_go() noexcept;
  [[noreturn]] void report_lost(const std::string& fault) const;
  std::string names() const;

  std::shared_ptr<DonatingCall> call_;
  std::vector<Gift> gifts_;
  run::Tiles kept_;  // tiles in memory of other owners, which must not be overwritten
};

/// Per output: the donated input whose buffers it takes, or -1. Inputs with the same path are
/// matched first, then the others in order. The placements must be equal, so shardings never depend
/// on donation.
std::vector<int> aliases_of(const Program& program);
/// Per result: the argument whose next value it is, or -1. They are matched by path and type.
std::vector<int> replaced_arguments(const std::vector<std::string>& paths,
                                    const std::vector<PlacementPtr>& inputs,
                                    const std::vector<std::string>& result_paths,
                                    const std::vector<Type>& results);

}  // namespace tessera::detail
