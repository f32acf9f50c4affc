module @tessera attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<3x6x5x2xf32>) -> (tensor<3x3x2x2xf32>) {
    %0 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %4 = "stablehlo.reduce_window"(%arg0, %0) ({
      ^bb0(%1: tensor<f32>, %2: tensor<f32>):
        %3 = stablehlo.maximum %1, %2 : tensor<f32>
        stablehlo.return %3 : tensor<f32>
    }) {window_dimensions = array<i64: 1, 2, 2, 1>, window_strides = array<i64: 1, 2, 2, 1>} : (tensor<3x6x5x2xf32>, tensor<f32>) -> tensor<3x3x2x2xf32>
    return %4 : tensor<3x3x2x2xf32>
  }
}
