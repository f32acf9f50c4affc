module @tessera attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<3x6xi32>, %arg1: tensor<3x6x5xf32>) -> (tensor<2x5xf32>) {
    %0 = stablehlo.constant dense<-1> : tensor<i32>
    %1 = stablehlo.constant dense<-1> : tensor<i32>
    %2 = stablehlo.constant dense<0x7F800000> : tensor<2x5xf32>
    %3 = stablehlo.reshape %arg0 : (tensor<3x6xi32>) -> tensor<3x6x1xi32>
    %7 = "stablehlo.scatter"(%2, %3, %arg1) ({
      ^bb0(%4: tensor<f32>, %5: tensor<f32>):
        %6 = stablehlo.minimum %4, %5 : tensor<f32>
        stablehlo.return %6 : tensor<f32>
    }) {scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [2], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 2>, indices_are_sorted = false, unique_indices = false} : (tensor<2x5xf32>, tensor<3x6x1xi32>, tensor<3x6x5xf32>) -> tensor<2x5xf32>
    return %7 : tensor<2x5xf32>
  }
}
