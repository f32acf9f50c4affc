module @tessera attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<5x6xf32>, %arg1: tensor<3xi32>, %arg2: tensor<3x6xf32>) -> (tensor<5x6xf32>) {
    %0 = stablehlo.iota dim = 0 : tensor<3xi32>
    %1 = stablehlo.constant dense<-1> : tensor<5xi32>
    %2 = stablehlo.reshape %arg1 : (tensor<3xi32>) -> tensor<3x1xi32>
    %6 = "stablehlo.scatter"(%1, %2, %0) ({
      ^bb0(%3: tensor<i32>, %4: tensor<i32>):
        %5 = stablehlo.maximum %3, %4 : tensor<i32>
        stablehlo.return %5 : tensor<i32>
    }) {scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, indices_are_sorted = false, unique_indices = false} : (tensor<5xi32>, tensor<3x1xi32>, tensor<3xi32>) -> tensor<5xi32>
    %7 = stablehlo.constant dense<0> : tensor<5xi32>
    %8 = stablehlo.maximum %6, %7 : tensor<5xi32>
    %9 = stablehlo.reshape %8 : (tensor<5xi32>) -> tensor<5x1xi32>
    %10 = "stablehlo.gather"(%arg2, %9) {dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 6>, indices_are_sorted = false} : (tensor<3x6xf32>, tensor<5x1xi32>) -> tensor<5x6xf32>
    %11 = stablehlo.compare GE, %6, %7, SIGNED : (tensor<5xi32>, tensor<5xi32>) -> tensor<5xi1>
    %12 = stablehlo.broadcast_in_dim %11, dims = [0] : (tensor<5xi1>) -> tensor<5x6xi1>
    %13 = stablehlo.select %12, %10, %arg0 : tensor<5x6xi1>, tensor<5x6xf32>
    return %13 : tensor<5x6xf32>
  }
}
