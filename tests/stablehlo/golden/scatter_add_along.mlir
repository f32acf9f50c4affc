module @tessera attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<5x6xi32>, %arg1: tensor<5x6xf32>) -> (tensor<5x3xf32>) {
    %0 = stablehlo.constant dense<0x00000000> : tensor<5x3xf32>
    %1 = stablehlo.reshape %arg0 : (tensor<5x6xi32>) -> tensor<5x6x1xi32>
    %5 = "stablehlo.scatter"(%0, %1, %arg1) ({
      ^bb0(%2: tensor<f32>, %3: tensor<f32>):
        %4 = stablehlo.add %2, %3 : tensor<f32>
        stablehlo.return %4 : tensor<f32>
    }) {scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [], inserted_window_dims = [1], input_batching_dims = [0], scatter_indices_batching_dims = [0], scatter_dims_to_operand_dims = [1], index_vector_dim = 2>, indices_are_sorted = false, unique_indices = false} : (tensor<5x3xf32>, tensor<5x6x1xi32>, tensor<5x6xf32>) -> tensor<5x3xf32>
    return %5 : tensor<5x3xf32>
  }
}
