module @tessera attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<3x4x5xf32>) -> (tensor<3x4x3xf32>, tensor<3x4xf32>) {
    %0 = stablehlo.slice %arg0 [0:3:1, 0:4:1, 4:5:1] : (tensor<3x4x5xf32>) -> tensor<3x4x1xf32>
    %1 = stablehlo.constant dense<0x00000000> : tensor<3x4x1xf32>
    %2 = stablehlo.compare EQ, %0, %1, FLOAT : (tensor<3x4x1xf32>, tensor<3x4x1xf32>) -> tensor<3x4x1xi1>
    %3 = stablehlo.constant dense<0x3F800000> : tensor<3x4x1xf32>
    %4 = stablehlo.select %2, %3, %0 : tensor<3x4x1xi1>, tensor<3x4x1xf32>
    %5 = stablehlo.slice %arg0 [0:3:1, 0:4:1, 3:4:1] : (tensor<3x4x5xf32>) -> tensor<3x4x1xf32>
    %6 = stablehlo.constant dense<0xFF800000> : tensor<3x4x1xf32>
    %7 = stablehlo.compare EQ, %5, %6, FLOAT : (tensor<3x4x1xf32>, tensor<3x4x1xf32>) -> tensor<3x4x1xi1>
    %8 = stablehlo.constant dense<0x00000000> : tensor<3x4x1xf32>
    %9 = stablehlo.select %7, %8, %5 : tensor<3x4x1xi1>, tensor<3x4x1xf32>
    %10 = stablehlo.log %0 : tensor<3x4x1xf32>
    %11 = stablehlo.add %9, %10 : tensor<3x4x1xf32>
    %12 = stablehlo.slice %arg0 [0:3:1, 0:4:1, 0:3:1] : (tensor<3x4x5xf32>) -> tensor<3x4x3xf32>
    %13 = stablehlo.reshape %4 : (tensor<3x4x1xf32>) -> tensor<3x4xf32>
    %14 = stablehlo.broadcast_in_dim %13, dims = [0, 1] : (tensor<3x4xf32>) -> tensor<3x4x3xf32>
    %15 = stablehlo.divide %12, %14 : tensor<3x4x3xf32>
    %16 = stablehlo.reshape %11 : (tensor<3x4x1xf32>) -> tensor<3x4xf32>
    return %15, %16 : tensor<3x4x3xf32>, tensor<3x4xf32>
  }
}
