module @tessera attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<5x6xf32>) -> (tensor<5x6xf32>) {
    %0 = stablehlo.constant dense<0x40000000> : tensor<5x6xf32>
    %1 = stablehlo.power %0, %arg0 : tensor<5x6xf32>
    return %1 : tensor<5x6xf32>
  }
}
