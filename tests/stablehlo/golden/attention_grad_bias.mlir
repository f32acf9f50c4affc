module @tessera attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<3x6x2x4xf32>, %arg1: tensor<3x5x2x4xf32>, %arg2: tensor<3x5x2x4xf32>, %arg3: tensor<3x6x2x4xf32>, %arg4: tensor<3x6x2xf32>, %arg5: tensor<3x6x2xf32>, %arg6: tensor<1x2x6x5xf32>, %arg7: tensor<3xi32>) -> (tensor<3x2x6x5xf32>) {
    %0 = stablehlo.constant dense<0xFF800000> : tensor<3x6x2xf32>
    %1 = stablehlo.compare EQ, %arg4, %0, FLOAT : (tensor<3x6x2xf32>, tensor<3x6x2xf32>) -> tensor<3x6x2xi1>
    %2 = stablehlo.constant dense<0x00000000> : tensor<3x6x2xf32>
    %3 = stablehlo.select %1, %2, %arg4 : tensor<3x6x2xi1>, tensor<3x6x2xf32>
    %4 = stablehlo.constant dense<0x3F000000> : tensor<3x6x2x4xf32>
    %5 = stablehlo.multiply %arg0, %4 : tensor<3x6x2x4xf32>
    %6 = stablehlo.dot_general %5, %arg1, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3], precision = [HIGHEST, HIGHEST] : (tensor<3x6x2x4xf32>, tensor<3x5x2x4xf32>) -> tensor<3x2x6x5xf32>
    %7 = stablehlo.reshape %arg6 : (tensor<1x2x6x5xf32>) -> tensor<2x6x5xf32>
    %8 = stablehlo.broadcast_in_dim %7, dims = [1, 2, 3] : (tensor<2x6x5xf32>) -> tensor<3x2x6x5xf32>
    %9 = stablehlo.add %6, %8 : tensor<3x2x6x5xf32>
    %10 = stablehlo.transpose %3, dims = [0, 2, 1] : (tensor<3x6x2xf32>) -> tensor<3x2x6xf32>
    %11 = stablehlo.broadcast_in_dim %10, dims = [0, 1, 2] : (tensor<3x2x6xf32>) -> tensor<3x2x6x5xf32>
    %12 = stablehlo.subtract %9, %11 : tensor<3x2x6x5xf32>
    %13 = stablehlo.exponential %12 : tensor<3x2x6x5xf32>
    %14 = stablehlo.iota dim = 2 : tensor<3x2x6x5xi32>
    %15 = stablehlo.iota dim = 3 : tensor<3x2x6x5xi32>
    %16 = stablehlo.constant dense<true> : tensor<3x2x6x5xi1>
    %17 = stablehlo.broadcast_in_dim %arg7, dims = [0] : (tensor<3xi32>) -> tensor<3x2x6x5xi32>
    %18 = stablehlo.compare LT, %15, %17, SIGNED : (tensor<3x2x6x5xi32>, tensor<3x2x6x5xi32>) -> tensor<3x2x6x5xi1>
    %19 = stablehlo.and %16, %18 : tensor<3x2x6x5xi1>
    %20 = stablehlo.constant dense<0x00000000> : tensor<3x2x6x5xf32>
    %21 = stablehlo.select %19, %13, %20 : tensor<3x2x6x5xi1>, tensor<3x2x6x5xf32>
    %22 = stablehlo.transpose %arg5, dims = [0, 2, 1] : (tensor<3x6x2xf32>) -> tensor<3x2x6xf32>
    %23 = stablehlo.broadcast_in_dim %22, dims = [0, 1, 2] : (tensor<3x2x6xf32>) -> tensor<3x2x6x5xf32>
    %24 = stablehlo.dot_general %arg3, %arg2, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3], precision = [HIGHEST, HIGHEST] : (tensor<3x6x2x4xf32>, tensor<3x5x2x4xf32>) -> tensor<3x2x6x5xf32>
    %25 = stablehlo.subtract %24, %23 : tensor<3x2x6x5xf32>
    %26 = stablehlo.multiply %21, %25 : tensor<3x2x6x5xf32>
    return %26 : tensor<3x2x6x5xf32>
  }
}
