module @tessera attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<5x12xf32>) -> (tensor<5x3x4xf32>) {
    %0 = stablehlo.reshape %arg0 : (tensor<5x12xf32>) -> tensor<5x3x4xf32>
    return %0 : tensor<5x3x4xf32>
  }
}
