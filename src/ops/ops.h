// The names of all op records, by family.
#pragma once

#include "ops/record.h"

namespace tessera::ops {

// elementwise_unary.cc
extern const OpRecord abs_op;
extern const OpRecord cos_op;
extern const OpRecord erf_inv_op;
extern const OpRecord exp_op;
extern const OpRecord expm1_op;
extern const OpRecord floor_op;
extern const OpRecord is_finite_op;
extern const OpRecord log1p_op;
extern const OpRecord log_op;
extern const OpRecord logistic_op;
extern const OpRecord neg_op;
extern const OpRecord not_op;
extern const OpRecord rsqrt_op;
extern const OpRecord sign_op;
extern const OpRecord sin_op;
extern const OpRecord sqrt_op;
extern const OpRecord stop_gradient_op;
extern const OpRecord tanh_op;

// elementwise_binary.cc
extern const OpRecord add_op;
extern const OpRecord div_op;
extern const OpRecord fma_op;
extern const OpRecord max_op;
extern const OpRecord min_op;
extern const OpRecord mul_op;
extern const OpRecord pow_op;
extern const OpRecord rem_op;
extern const OpRecord sub_op;

// bitwise.cc
extern const OpRecord and_op;
extern const OpRecord or_op;
extern const OpRecord shift_left_op;
extern const OpRecord shift_right_arithmetic_op;
extern const OpRecord shift_right_logical_op;
extern const OpRecord xor_op;

// compare_select.cc
extern const OpRecord clamp_op;
extern const OpRecord compare_op;
extern const OpRecord select_op;

// convert.cc
extern const OpRecord bitcast_op;
extern const OpRecord convert_op;

// create.cc
extern const OpRecord constant_op;
extern const OpRecord iota_op;

// shape.cc
extern const OpRecord broadcast_in_dim_op;
extern const OpRecord reshape_op;
extern const OpRecord transpose_op;

// window.cc
extern const OpRecord concatenate_op;
extern const OpRecord pad_op;
extern const OpRecord reverse_op;
extern const OpRecord slice_op;

// reduce.cc
extern const OpRecord argmax_op;
extern const OpRecord argmin_op;
extern const OpRecord reduce_and_op;
extern const OpRecord reduce_max_op;
extern const OpRecord reduce_min_op;
extern const OpRecord reduce_or_op;
extern const OpRecord reduce_sum_op;

// contract.cc
extern const OpRecord dot_general_op;

// index.cc
extern const OpRecord gather_op;
extern const OpRecord scatter_add_op;

// random.cc
extern const OpRecord random_bits_op;
extern const OpRecord random_fold_in_op;
extern const OpRecord random_split_op;

// sort.cc
extern const OpRecord sort_op;

// functions/: elementwise, beyond the basic ones
extern const OpRecord acos_op;
extern const OpRecord acosh_op;
extern const OpRecord asin_op;
extern const OpRecord asinh_op;
extern const OpRecord atan2_op;
extern const OpRecord atan_op;
extern const OpRecord atanh_op;
extern const OpRecord cbrt_op;
extern const OpRecord ceil_op;
extern const OpRecord cosh_op;
extern const OpRecord count_leading_zeros_op;
extern const OpRecord erf_op;
extern const OpRecord erfc_op;
extern const OpRecord exp2_op;
extern const OpRecord log2_op;
extern const OpRecord population_count_op;
extern const OpRecord round_op;
extern const OpRecord sinh_op;
extern const OpRecord tan_op;

// window/: sliding windows
extern const OpRecord conv_op;
extern const OpRecord reduce_window_max_op;
extern const OpRecord reduce_window_min_op;
extern const OpRecord reduce_window_sum_op;

// indexing/: by data, beyond gather
extern const OpRecord dynamic_slice_op;
extern const OpRecord dynamic_update_slice_op;
extern const OpRecord gather_along_op;
extern const OpRecord permute_op;
extern const OpRecord scatter_add_along_op;
extern const OpRecord scatter_op;
extern const OpRecord top_k_op;

// cumulative/
extern const OpRecord cummax_op;
extern const OpRecord cummin_op;
extern const OpRecord cumprod_op;
extern const OpRecord cumsum_op;
extern const OpRecord reduce_prod_op;

// axis/: over the elements of a mapped axis
extern const OpRecord axis_all_to_all_op;
extern const OpRecord axis_gather_op;
extern const OpRecord axis_index_op;
extern const OpRecord axis_permute_op;

// control/records.cc: ops with nested functions
extern const OpRecord call_op;
extern const OpRecord cond_op;
extern const OpRecord custom_vjp_op;
extern const OpRecord optimization_barrier_op;
extern const OpRecord remat_op;
extern const OpRecord scan_op;
extern const OpRecord while_op;

// collective.cc: what the partitioner places and moves
extern const OpRecord all_gather_op;
extern const OpRecord all_reduce_op;
extern const OpRecord all_slice_op;
extern const OpRecord all_to_all_op;
extern const OpRecord collective_permute_op;
extern const OpRecord reduce_scatter_op;
extern const OpRecord sharding_constraint_op;

}  // namespace tessera::ops
