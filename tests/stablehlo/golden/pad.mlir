module @tessera attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<5x6xf32>, %arg1: tensor<f32>) -> (tensor<8x6xf32>) {
    %0 = stablehlo.pad %arg0, %arg1, low = [1, 0], high = [2, 0], interior = [0, 0] : (tensor<5x6xf32>, tensor<f32>) -> tensor<8x6xf32>
    return %0 : tensor<8x6xf32>
  }
}
