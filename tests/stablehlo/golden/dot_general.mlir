module @tessera attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<5x12xf32>, %arg1: tensor<12x6xf32>) -> (tensor<5x6xf32>) {
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0], precision = [HIGHEST, HIGHEST] : (tensor<5x12xf32>, tensor<12x6xf32>) -> tensor<5x6xf32>
    return %0 : tensor<5x6xf32>
  }
}
