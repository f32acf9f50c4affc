module @tessera attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<5x6xi1>) -> (tensor<5xi1>) {
    %0 = stablehlo.constant dense<true> : tensor<i1>
    %1 = stablehlo.reduce(%arg0 init: %0) applies stablehlo.and across dimensions = [1] : (tensor<5x6xi1>, tensor<i1>) -> tensor<5xi1>
    return %1 : tensor<5xi1>
  }
}
