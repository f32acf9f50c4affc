module @tessera attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<5x6xi32>, %arg1: tensor<5x6xi32>) -> (tensor<5x6xi32>) {
    %0 = stablehlo.shift_right_logical %arg0, %arg1 : tensor<5x6xi32>
    return %0 : tensor<5x6xi32>
  }
}
