module @tessera attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x4xf32>) -> (tensor<4x4xf32>) {
    %0 = stablehlo.cholesky %arg0, lower = true : tensor<4x4xf32>
    %1 = stablehlo.iota dim = 0 : tensor<4x4xi32>
    %2 = stablehlo.iota dim = 1 : tensor<4x4xi32>
    %3 = stablehlo.constant dense<0x00000000> : tensor<4x4xf32>
    %4 = stablehlo.compare LE, %2, %1, SIGNED : (tensor<4x4xi32>, tensor<4x4xi32>) -> tensor<4x4xi1>
    %5 = stablehlo.select %4, %0, %3 : tensor<4x4xi1>, tensor<4x4xf32>
    return %5 : tensor<4x4xf32>
  }
}
