module @tessera attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x4xf32>, %arg1: tensor<4xf32>) -> (tensor<4x4xf32>) {
    %0 = stablehlo.custom_call @ProductOfElementaryHouseholderReflectors(%arg0, %arg1) : (tensor<4x4xf32>, tensor<4xf32>) -> tensor<4x4xf32>
    return %0 : tensor<4x4xf32>
  }
}
