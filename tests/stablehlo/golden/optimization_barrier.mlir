module @tessera attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<5x6xf32>, %arg1: tensor<12x1xf32>) -> (tensor<5x6xf32>, tensor<12x1xf32>) {
    %0:2 = stablehlo.optimization_barrier %arg0, %arg1 : tensor<5x6xf32>, tensor<12x1xf32>
    return %0#0, %0#1 : tensor<5x6xf32>, tensor<12x1xf32>
  }
}
