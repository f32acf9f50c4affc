// The nested functions of a compilation. Equal functions share an executable.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "compile/compile.h"

namespace tessera::compile {

class BodyPool {
 public:
  /// The executable of a function that is equal except for its name and has equal aliases; compiled
  /// if there is none yet. `options.bodies` is this pool.
  std::shared_ptr<const run::Executable> get(const ir::Function& body,
                                             const CompileOptions& options);
  std::int64_t size() const { return static_cast<std::int64_t>(compiled_.size()); }

 private:
  struct Compiled {
    ir::Function body;  // without a name
    std::vector<int> output_alias;
    std::shared_ptr<const run::Executable> executable;
  };
  std::unordered_multimap<std::size_t, Compiled> compiled_;
};

}  // namespace tessera::compile
