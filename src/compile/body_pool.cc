#include "compile/body_pool.h"

#include <algorithm>

#include "ir/hash.h"

namespace tessera::compile {

std::shared_ptr<const run::Executable> BodyPool::get(const ir::Function& body,
                                                     const CompileOptions& options) {
  const std::size_t hash = ir::hash_of(body);
  ir::Function wanted = body;
  wanted.name.clear();
  const auto [begin, end] = compiled_.equal_range(hash);
  const auto found = std::find_if(begin, end, [&](const auto& item) {
    return item.second.output_alias == options.output_alias && item.second.body == wanted;
  });
  if (found != end) return found->second.executable;
  auto executable = compile(body, options);
  compiled_.emplace(hash, Compiled{.body = std::move(wanted),
                                   .output_alias = options.output_alias,
                                   .executable = executable});
  return executable;
}

}  // namespace tessera::compile
