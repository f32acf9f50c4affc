module @tessera attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<5x6xf32>, %arg1: tensor<5x3xi32>) -> (tensor<5x3xf32>) {
    %0 = stablehlo.reshape %arg1 : (tensor<5x3xi32>) -> tensor<5x3x1xi32>
    %1 = "stablehlo.gather"(%arg0, %0) {dimension_numbers = #stablehlo.gather<offset_dims = [], collapsed_slice_dims = [1], operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 2>, slice_sizes = array<i64: 1, 1>, indices_are_sorted = false} : (tensor<5x6xf32>, tensor<5x3x1xi32>) -> tensor<5x3xf32>
    %2 = stablehlo.constant dense<0x7FC00000> : tensor<5x3xf32>
    %3 = stablehlo.constant dense<0> : tensor<5x3xi32>
    %4 = stablehlo.compare GE, %arg1, %3, SIGNED : (tensor<5x3xi32>, tensor<5x3xi32>) -> tensor<5x3xi1>
    %5 = stablehlo.constant dense<6> : tensor<5x3xi32>
    %6 = stablehlo.compare LT, %arg1, %5, SIGNED : (tensor<5x3xi32>, tensor<5x3xi32>) -> tensor<5x3xi1>
    %7 = stablehlo.and %4, %6 : tensor<5x3xi1>
    %8 = stablehlo.broadcast_in_dim %7, dims = [0, 1] : (tensor<5x3xi1>) -> tensor<5x3xi1>
    %9 = stablehlo.select %8, %1, %2 : tensor<5x3xi1>, tensor<5x3xf32>
    return %9 : tensor<5x3xf32>
  }
}
