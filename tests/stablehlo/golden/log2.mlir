module @tessera attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<5x6xf32>) -> (tensor<5x6xf32>) {
    %0 = stablehlo.log %arg0 : tensor<5x6xf32>
    %1 = stablehlo.constant dense<0x3F317218> : tensor<5x6xf32>
    %2 = stablehlo.divide %0, %1 : tensor<5x6xf32>
    return %2 : tensor<5x6xf32>
  }
}
