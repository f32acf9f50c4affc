module @tessera attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<5x6xf32>, %arg1: tensor<5x6xf32>, %arg2: tensor<5x6xf32>) -> (tensor<5x6xf32>) {
    %0 = stablehlo.convert %arg0 : (tensor<5x6xf32>) -> tensor<5x6xf64>
    %1 = stablehlo.convert %arg1 : (tensor<5x6xf32>) -> tensor<5x6xf64>
    %2 = stablehlo.convert %arg2 : (tensor<5x6xf32>) -> tensor<5x6xf64>
    %3 = stablehlo.multiply %0, %1 : tensor<5x6xf64>
    %4 = stablehlo.add %3, %2 : tensor<5x6xf64>
    %5 = stablehlo.convert %4 : (tensor<5x6xf64>) -> tensor<5x6xf32>
    return %5 : tensor<5x6xf32>
  }
}
