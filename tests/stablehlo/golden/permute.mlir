module @tessera attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<8x5xf32>) -> (tensor<8x5xf32>) {
    %0 = stablehlo.slice %arg0 [7:8:1, 0:5:1] : (tensor<8x5xf32>) -> tensor<1x5xf32>
    %1 = stablehlo.slice %arg0 [0:1:1, 0:5:1] : (tensor<8x5xf32>) -> tensor<1x5xf32>
    %2 = stablehlo.slice %arg0 [1:2:1, 0:5:1] : (tensor<8x5xf32>) -> tensor<1x5xf32>
    %3 = stablehlo.slice %arg0 [2:3:1, 0:5:1] : (tensor<8x5xf32>) -> tensor<1x5xf32>
    %4 = stablehlo.slice %arg0 [3:4:1, 0:5:1] : (tensor<8x5xf32>) -> tensor<1x5xf32>
    %5 = stablehlo.slice %arg0 [4:5:1, 0:5:1] : (tensor<8x5xf32>) -> tensor<1x5xf32>
    %6 = stablehlo.slice %arg0 [5:6:1, 0:5:1] : (tensor<8x5xf32>) -> tensor<1x5xf32>
    %7 = stablehlo.slice %arg0 [6:7:1, 0:5:1] : (tensor<8x5xf32>) -> tensor<1x5xf32>
    %8 = stablehlo.concatenate %0, %1, %2, %3, %4, %5, %6, %7, dim = 0 : (tensor<1x5xf32>, tensor<1x5xf32>, tensor<1x5xf32>, tensor<1x5xf32>, tensor<1x5xf32>, tensor<1x5xf32>, tensor<1x5xf32>, tensor<1x5xf32>) -> tensor<8x5xf32>
    return %8 : tensor<8x5xf32>
  }
}
