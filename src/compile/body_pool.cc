#include "compile/body_pool.h"

#include <algorithm>
#include <bit>

namespace tessera::compile {

namespace {

/// Equal for equal functions; tells apart most of those that differ.
std::size_t hash_of(const ir::Function& body) {
  std::size_t hash = body.values.size();
  const auto add = [&](std::size_t word) { hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL; };
  for (const ir::ValueId id : body.inputs) {
    for (const std::int64_t size : body.type(id).shape) add(static_cast<std::size_t>(size));
  }
  for (const ir::Equation& equation : body.equations) {
    add(std::bit_cast<std::size_t>(equation.op));
    for (const ir::ValueId id : equation.operands) add(id);
  }
  return hash;
}

}  // namespace

std::shared_ptr<const run::Executable> BodyPool::get(const ir::Function& body,
                                                     const CompileOptions& options) {
  const std::size_t hash = hash_of(body);
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
