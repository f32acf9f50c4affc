module @tessera attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<3x4x5xf32>, %arg1: tensor<3x4x5xf32>) -> (tensor<3x4x5xf32>) {
    %0 = stablehlo.slice %arg1 [0:3:1, 0:4:1, 3:4:1] : (tensor<3x4x5xf32>) -> tensor<3x4x1xf32>
    %1 = stablehlo.slice %arg0 [0:3:1, 0:4:1, 3:4:1] : (tensor<3x4x5xf32>) -> tensor<3x4x1xf32>
    %2 = stablehlo.maximum %1, %0 : tensor<3x4x1xf32>
    %3 = stablehlo.constant dense<0xFF800000> : tensor<3x4x1xf32>
    %4 = stablehlo.compare EQ, %2, %3, FLOAT : (tensor<3x4x1xf32>, tensor<3x4x1xf32>) -> tensor<3x4x1xi1>
    %5 = stablehlo.constant dense<0x00000000> : tensor<3x4x1xf32>
    %6 = stablehlo.select %4, %5, %2 : tensor<3x4x1xi1>, tensor<3x4x1xf32>
    %7 = stablehlo.slice %arg0 [0:3:1, 0:4:1, 3:4:1] : (tensor<3x4x5xf32>) -> tensor<3x4x1xf32>
    %8 = stablehlo.subtract %7, %6 : tensor<3x4x1xf32>
    %9 = stablehlo.exponential %8 : tensor<3x4x1xf32>
    %10 = stablehlo.slice %arg1 [0:3:1, 0:4:1, 3:4:1] : (tensor<3x4x5xf32>) -> tensor<3x4x1xf32>
    %11 = stablehlo.subtract %10, %6 : tensor<3x4x1xf32>
    %12 = stablehlo.exponential %11 : tensor<3x4x1xf32>
    %13 = stablehlo.slice %arg0 [0:3:1, 0:4:1, 4:5:1] : (tensor<3x4x5xf32>) -> tensor<3x4x1xf32>
    %14 = stablehlo.multiply %13, %9 : tensor<3x4x1xf32>
    %15 = stablehlo.slice %arg1 [0:3:1, 0:4:1, 4:5:1] : (tensor<3x4x5xf32>) -> tensor<3x4x1xf32>
    %16 = stablehlo.multiply %15, %12 : tensor<3x4x1xf32>
    %17 = stablehlo.add %14, %16 : tensor<3x4x1xf32>
    %18 = stablehlo.slice %arg0 [0:3:1, 0:4:1, 0:3:1] : (tensor<3x4x5xf32>) -> tensor<3x4x3xf32>
    %19 = stablehlo.reshape %9 : (tensor<3x4x1xf32>) -> tensor<3x4xf32>
    %20 = stablehlo.broadcast_in_dim %19, dims = [0, 1] : (tensor<3x4xf32>) -> tensor<3x4x3xf32>
    %21 = stablehlo.multiply %18, %20 : tensor<3x4x3xf32>
    %22 = stablehlo.slice %arg1 [0:3:1, 0:4:1, 0:3:1] : (tensor<3x4x5xf32>) -> tensor<3x4x3xf32>
    %23 = stablehlo.reshape %12 : (tensor<3x4x1xf32>) -> tensor<3x4xf32>
    %24 = stablehlo.broadcast_in_dim %23, dims = [0, 1] : (tensor<3x4xf32>) -> tensor<3x4x3xf32>
    %25 = stablehlo.multiply %22, %24 : tensor<3x4x3xf32>
    %26 = stablehlo.add %21, %25 : tensor<3x4x3xf32>
    %27 = stablehlo.concatenate %26, %2, %17, dim = 2 : (tensor<3x4x3xf32>, tensor<3x4x1xf32>, tensor<3x4x1xf32>) -> tensor<3x4x5xf32>
    return %27 : tensor<3x4x5xf32>
  }
}
