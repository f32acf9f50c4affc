module @tessera attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4xf32>) {
    %0:2 = stablehlo.custom_call @Qr(%arg0) : (tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4xf32>)
    return %0#0, %0#1 : tensor<4x4xf32>, tensor<4xf32>
  }
}
