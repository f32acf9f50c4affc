#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/scatter/loops.cc"  // NOLINT
#include <hwy/foreach_target.h>

#include "compile/host/kernels/scatter/column-inl.h"
#include "compile/host/kernels/scatter/loops-inl.h"

#if HWY_ONCE
namespace tessera::kernels {

HWY_EXPORT(JoinRows);
HWY_EXPORT(FillTables);
HWY_EXPORT(JoinColumn);
HWY_EXPORT(JoinTables);

void join_rows(const ScatterProblem& problem, const RowBlock& block) {
  HWY_DYNAMIC_DISPATCH(JoinRows)(problem, block);
}
void fill_tables(const ScatterProblem& problem, const GrainTables& grains) {
  HWY_DYNAMIC_DISPATCH(FillTables)(problem, grains);
}
void join_column(const ScatterProblem& problem, const ColumnPart& part) {
  HWY_DYNAMIC_DISPATCH(JoinColumn)(problem, part);
}
void join_tables(const ScatterProblem& problem, std::int64_t rows, std::byte* tables,
                 std::byte* result) {
  HWY_DYNAMIC_DISPATCH(JoinTables)(problem, rows, tables, result);
}

}  // namespace tessera::kernels
#endif
