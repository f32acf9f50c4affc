// The families of op records, one per file, and the records that other code knows by symbol.
#pragma once

#include "ops/record.h"

namespace tessera::ops {

/// The records of one file. table.cc joins them.
using OpFamily = std::vector<const OpRecord*>;
OpFamily along_ops();
OpFamily attention_ops();
OpFamily axis_ops();
OpFamily bitwise_ops();
OpFamily callback_ops();
OpFamily collective_ops();
OpFamily compare_select_ops();
OpFamily contract_ops();
OpFamily control_ops();
OpFamily conv_ops();
OpFamily convert_ops();
OpFamily create_ops();
OpFamily cumulative_ops();
OpFamily dynamic_slice_ops();
OpFamily elementwise_binary_ops();
OpFamily elementwise_unary_ops();
OpFamily fourier_ops();
OpFamily index_ops();
OpFamily lu_ops();
OpFamily mark_ops();
OpFamily mpmd_ops();
OpFamily permute_ops();
OpFamily qr_ops();
OpFamily random_ops();
OpFamily reduce_ops();
OpFamily reduce_prod_ops();
OpFamily reduce_window_ops();
OpFamily rounding_ops();
OpFamily scatter_join_ops();
OpFamily scatter_ops();
OpFamily shape_ops();
OpFamily sort_ops();
OpFamily special_ops();
OpFamily spectral_ops();
OpFamily top_k_ops();
OpFamily triangular_ops();
OpFamily trigonometric_ops();
OpFamily window_number_ops();
OpFamily window_ops();

// All other records are looked up by name (ir::find_op).
extern const OpRecord add_any_op;
extern const OpRecord add_op;
extern const OpRecord all_gather_op;
extern const OpRecord all_reduce_op;
extern const OpRecord all_slice_op;
extern const OpRecord all_to_all_op;
extern const OpRecord argmax_op;
extern const OpRecord argmin_op;
extern const OpRecord attention_grad_kv_op;
extern const OpRecord attention_grad_op;
extern const OpRecord attention_grad_q_op;
extern const OpRecord attention_op;
extern const OpRecord broadcast_in_dim_op;
extern const OpRecord call_op;
extern const OpRecord cholesky_op;
extern const OpRecord collective_permute_op;
extern const OpRecord concatenate_op;
extern const OpRecord cond_op;
extern const OpRecord constant_op;
extern const OpRecord cummax_op;
extern const OpRecord cumprod_op;
extern const OpRecord cumsum_op;
extern const OpRecord custom_vjp_op;
extern const OpRecord dot_general_op;
extern const OpRecord eigh_op;
extern const OpRecord geqrf_op;
extern const OpRecord halo_exchange_op;
extern const OpRecord host_callback_op;
extern const OpRecord householder_product_op;
extern const OpRecord inspect_sharding_op;
extern const OpRecord iota_op;
extern const OpRecord lu_op;
extern const OpRecord optimization_barrier_op;
extern const OpRecord pad_op;
extern const OpRecord permute_op;
extern const OpRecord qr_op;
extern const OpRecord reduce_and_op;
extern const OpRecord reduce_max_op;
extern const OpRecord reduce_min_op;
extern const OpRecord reduce_scatter_op;
extern const OpRecord reduce_sum_op;
extern const OpRecord reduce_window_max_op;
extern const OpRecord reduce_window_min_op;
extern const OpRecord reduce_window_sum_op;
extern const OpRecord remat_op;
extern const OpRecord reshape_op;
extern const OpRecord scan_op;
extern const OpRecord scatter_max_op;
extern const OpRecord scatter_min_op;
extern const OpRecord sharding_constraint_op;
extern const OpRecord slice_op;
extern const OpRecord stage_end_op;
extern const OpRecord svd_op;
extern const OpRecord task_op;
extern const OpRecord top_k_op;
extern const OpRecord transfer_op;
extern const OpRecord triangular_solve_op;
extern const OpRecord while_op;

/// Whether the equation applies this op. Compares names, which are unique in the table, and not
/// addresses, because tests run copies of records with one rule changed.
bool is(const ir::Equation& equation, const OpRecord& op);
/// The equation that makes a value; nullptr for an input. Looks at all equations, the last one
/// first.
const ir::Equation* definition_of(const ir::Function& function, ValueId value);

}  // namespace tessera::ops
