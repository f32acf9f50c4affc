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
