// Which instructions have certainly ended when another one starts.
#pragma once

#include <vector>

#include "compile/host/program.h"

namespace tessera::compile::host {

/// Considers only data dependencies and the order within groups, not the reuse of memory.
class GroupClocks {
 public:
  explicit GroupClocks(const HostProgram& program);

  /// Whether instruction `early`, which is part of a chain, ends before `late` starts.
  bool is_before(std::size_t early, std::size_t late) const;

 private:
  void wait_for(std::size_t early, std::size_t late);

  std::vector<int> chain_;                       // per instruction
  std::vector<std::size_t> position_;            // per instruction: in its chain, from 1 on
  std::vector<std::vector<std::size_t>> ended_;  // per instruction and chain: how many have ended
};

}  // namespace tessera::compile::host
