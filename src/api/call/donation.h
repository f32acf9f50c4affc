// Arrays that a call is given for good. Nothing is lost before the program starts to run: until
// then a call that throws leaves them as they were.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "api/program.h"

namespace tessera::detail {

/// A call that gave arrays away.
struct DonatingCall {
  std::shared_ptr<const std::vector<std::string>> paths;  // of all arguments' leaves
  Span where;
  std::atomic<bool> has_failed = false;
};

/// The donated arguments of one call.
class Donation {
 public:
  /// Of a call that donates nothing.
  Donation() = default;
  /// Throws UserError when one array is donated twice. No array changes yet.
  Donation(const Program& program, const Walk& arguments, const Span& where);

  /// Runs the program; `inputs` are the tiles of all its inputs. Donated arrays are given away when
  /// it starts. What throws before that leaves them as they were; the RuntimeFault of a program
  /// that had started names those that are lost.
  std::vector<run::Tiles> run(const run::Executable& executable, std::vector<run::Tiles> inputs);
  /// Gives the arrays away without a program that writes to them.
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
};

/// Which donated input's buffers each output takes: of the same path first, then in order. Only
/// inputs of the output's own placement fit, so shardings never depend on what is donated.
std::vector<int> aliases_of(const Program& program);
/// Per result: the argument that it is the next value of, by path and type, or -1.
std::vector<int> replaced_arguments(const std::vector<std::string>& paths,
                                    const std::vector<const Placement*>& inputs,
                                    const std::vector<std::string>& result_paths,
                                    const std::vector<Type>& results);

}  // namespace tessera::detail
