module @tessera attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<5x6xi1>, %arg1: tensor<5x6xi1>) -> (tensor<5x6xi1>) {
    %0 = stablehlo.and %arg0, %arg1 : tensor<5x6xi1>
    return %0 : tensor<5x6xi1>
  }
}
