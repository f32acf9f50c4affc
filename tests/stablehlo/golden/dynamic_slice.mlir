module @tessera attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<5x6xf32>, %arg1: tensor<i32>, %arg2: tensor<i32>) -> (tensor<3x6xf32>) {
    %0 = stablehlo.constant dense<0x00000000> : tensor<f32>
    %1 = stablehlo.dynamic_slice %arg0, %arg1, %arg2, sizes = [3, 6] : (tensor<5x6xf32>, tensor<i32>, tensor<i32>) -> tensor<3x6xf32>
    return %1 : tensor<3x6xf32>
  }
}
