// Vector loops of reductions whose order does not matter; chosen at run time for this machine.
#pragma once

#include <cstdint>

#include "compile/host/kernels/reduce.h"

namespace tessera::kernels {

/// How terms are joined, and their type. `all` and `any` are the least and the largest of bytes.
struct JoinKind {
  ReduceKind kind;
  DType dtype;
};

/// `count` groups of `length` terms each, `stride` elements apart.
struct TermGroups {
  const void* from;
  std::int64_t count;
  std::int64_t stride;
  std::int64_t length;
};

/// to[i] is joined with term i of each group.
void join_columns(JoinKind kind, const TermGroups& rows, void* to);
/// to[g] is joined with all terms of group g.
void join_rows(JoinKind kind, const TermGroups& rows, void* to);

}  // namespace tessera::kernels
