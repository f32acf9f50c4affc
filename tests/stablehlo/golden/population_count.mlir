module @tessera attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<3x10xi32>) -> (tensor<3x10xi32>) {
    %0 = stablehlo.popcnt %arg0 : tensor<3x10xi32>
    return %0 : tensor<3x10xi32>
  }
}
