#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/reduce_rows.cc"  // NOLINT
#include <hwy/foreach_target.h>

#include "compile/host/kernels/reduce_columns-inl.h"
#include "compile/host/kernels/reduce_eighths-inl.h"
#include "compile/host/kernels/reduce_rows-inl.h"

#if HWY_ONCE
namespace tessera::kernels {

HWY_EXPORT(TargetName);
HWY_EXPORT(SumLeaves);
HWY_EXPORT(SumShortRows);
HWY_EXPORT(SumEighths);
HWY_EXPORT(AddLeafPairs);
HWY_EXPORT(AddLaneRuns);
HWY_EXPORT(FoldLanes);
HWY_EXPORT(AddColumnRuns);
HWY_EXPORT(AddRow);
HWY_EXPORT(SumWideLeaves);
HWY_EXPORT(AddWideLeafPairs);
HWY_EXPORT(AddWideColumnRuns);
HWY_EXPORT(AddWideRow);

std::string_view instruction_set() { return HWY_DYNAMIC_DISPATCH(TargetName)(); }

void sum_leaves(const ReduceRows<float>& rows, std::span<const LeafRuns> leaves,
                const std::int64_t* run_offsets, float* to) {
  HWY_DYNAMIC_DISPATCH(SumLeaves)(rows, leaves, run_offsets, to);
}
void sum_leaves(const ReduceRows<double>& rows, std::span<const LeafRuns> leaves,
                const std::int64_t* run_offsets, double* to) {
  HWY_DYNAMIC_DISPATCH(SumWideLeaves)(rows, leaves, run_offsets, to);
}
void sum_short_rows(const ReduceRows<float>& rows, const ShortRowSum& sum, float* to) {
  HWY_DYNAMIC_DISPATCH(SumShortRows)(rows, sum, to);
}
bool sum_eighths(const ReduceRows<float>& rows, std::int64_t terms, float* to) {
  return HWY_DYNAMIC_DISPATCH(SumEighths)(rows, terms, to);
}
void add_leaf_pairs(float* leaves, std::int64_t rows, std::int64_t num_leaves, float* to) {
  HWY_DYNAMIC_DISPATCH(AddLeafPairs)(leaves, rows, num_leaves, to);
}
void add_leaf_pairs(double* leaves, std::int64_t rows, std::int64_t num_leaves, double* to) {
  HWY_DYNAMIC_DISPATCH(AddWideLeafPairs)(leaves, rows, num_leaves, to);
}
void add_lane_runs(const float* from, std::span<const ColumnRun> runs, std::int64_t columns,
                   std::span<const std::int64_t> cuts, float* sums) {
  HWY_DYNAMIC_DISPATCH(AddLaneRuns)(from, runs, columns, cuts, sums);
}
void fold_lanes(float* lanes, std::int64_t count) { HWY_DYNAMIC_DISPATCH(FoldLanes)(lanes, count); }
void add_row(double* a, const double* b, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(AddWideRow)(a, b, count);
}
void add_row(float* a, const float* b, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(AddRow)(a, b, count);
}
void add_column_runs(const double* from, const ColumnRuns& all, double* sums) {
  HWY_DYNAMIC_DISPATCH(AddWideColumnRuns)(from, all, sums);
}
void add_column_runs(const float* from, const ColumnRuns& all, float* sums) {
  HWY_DYNAMIC_DISPATCH(AddColumnRuns)(from, all, sums);
}

}  // namespace tessera::kernels
#endif
