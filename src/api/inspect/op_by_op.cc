#include "api/inspect/op_by_op.h"

#include <fmt/format.h>

#include <tessera/debug.h>
#include <tessera/error.h>

#include "trace/trace.h"

namespace tessera {

namespace {

/// How many scopes of this thread have disabled jit.
int& num_disabled() {
  static thread_local int count = 0;
  return count;
}

}  // namespace

disable_jit::disable_jit() { num_disabled() += 1; }
disable_jit::~disable_jit() { num_disabled() -= 1; }

namespace detail {

bool is_jit_disabled() { return num_disabled() > 0; }

bool runs_op_by_op() { return is_jit_disabled() && trace::innermost() == nullptr; }

Called call_as_it_is(Body& body, const std::vector<Array>& leaves, const Span& where) {
  Called called{.result = body.call(leaves), .leaves = {}, .infos = {}, .paths = {}};
  Walk walk = body.walk_result(called.result.get(), Walk::Want::paths);
  called.paths = walk.paths();
  for (std::size_t i = 0; i < walk.leaves().size(); ++i) {
    const Walk::Leaf& leaf = walk.leaves()[i];
    if (leaf.array->is_empty()) {
      const std::string& path = called.paths[i];
      fail_empty("the result" + (path.empty() ? path : " of " + path), where);
    }
    called.leaves.push_back(*leaf.array);
    called.infos.push_back(leaf.info());
  }
  return called;
}

}  // namespace detail

}  // namespace tessera
