module @tessera attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<3x6x2x4xf32>, %arg1: tensor<3x5x2x4xf32>, %arg2: tensor<3x5x2x4xf32>, %arg3: tensor<1x2x6x5xf32>, %arg4: tensor<3xi32>) -> (tensor<3x6x2x4xf32>, tensor<3x6x2xf32>) {
    %0 = stablehlo.constant dense<0x3F000000> : tensor<3x6x2x4xf32>
    %1 = stablehlo.multiply %arg0, %0 : tensor<3x6x2x4xf32>
    %2 = stablehlo.dot_general %1, %arg1, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3], precision = [HIGHEST, HIGHEST] : (tensor<3x6x2x4xf32>, tensor<3x5x2x4xf32>) -> tensor<3x2x6x5xf32>
    %3 = stablehlo.reshape %arg3 : (tensor<1x2x6x5xf32>) -> tensor<2x6x5xf32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [1, 2, 3] : (tensor<2x6x5xf32>) -> tensor<3x2x6x5xf32>
    %5 = stablehlo.add %2, %4 : tensor<3x2x6x5xf32>
    %6 = stablehlo.constant dense<0xFF800000> : tensor<3x2x6x5xf32>
    %7 = stablehlo.iota dim = 2 : tensor<3x2x6x5xi32>
    %8 = stablehlo.iota dim = 3 : tensor<3x2x6x5xi32>
    %9 = stablehlo.constant dense<true> : tensor<3x2x6x5xi1>
    %10 = stablehlo.broadcast_in_dim %arg4, dims = [0] : (tensor<3xi32>) -> tensor<3x2x6x5xi32>
    %11 = stablehlo.compare LT, %8, %10, SIGNED : (tensor<3x2x6x5xi32>, tensor<3x2x6x5xi32>) -> tensor<3x2x6x5xi1>
    %12 = stablehlo.and %9, %11 : tensor<3x2x6x5xi1>
    %13 = stablehlo.select %12, %5, %6 : tensor<3x2x6x5xi1>, tensor<3x2x6x5xf32>
    %14 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %15 = stablehlo.reduce(%13 init: %14) applies stablehlo.maximum across dimensions = [3] : (tensor<3x2x6x5xf32>, tensor<f32>) -> tensor<3x2x6xf32>
    %16 = stablehlo.transpose %15, dims = [0, 2, 1] : (tensor<3x2x6xf32>) -> tensor<3x6x2xf32>
    %17 = stablehlo.constant dense<0xFF800000> : tensor<3x6x2xf32>
    %18 = stablehlo.compare EQ, %16, %17, FLOAT : (tensor<3x6x2xf32>, tensor<3x6x2xf32>) -> tensor<3x6x2xi1>
    %19 = stablehlo.constant dense<0x00000000> : tensor<3x6x2xf32>
    %20 = stablehlo.select %18, %19, %16 : tensor<3x6x2xi1>, tensor<3x6x2xf32>
    %21 = stablehlo.constant dense<0x3F000000> : tensor<3x6x2x4xf32>
    %22 = stablehlo.multiply %arg0, %21 : tensor<3x6x2x4xf32>
    %23 = stablehlo.dot_general %22, %arg1, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3], precision = [HIGHEST, HIGHEST] : (tensor<3x6x2x4xf32>, tensor<3x5x2x4xf32>) -> tensor<3x2x6x5xf32>
    %24 = stablehlo.reshape %arg3 : (tensor<1x2x6x5xf32>) -> tensor<2x6x5xf32>
    %25 = stablehlo.broadcast_in_dim %24, dims = [1, 2, 3] : (tensor<2x6x5xf32>) -> tensor<3x2x6x5xf32>
    %26 = stablehlo.add %23, %25 : tensor<3x2x6x5xf32>
    %27 = stablehlo.transpose %20, dims = [0, 2, 1] : (tensor<3x6x2xf32>) -> tensor<3x2x6xf32>
    %28 = stablehlo.broadcast_in_dim %27, dims = [0, 1, 2] : (tensor<3x2x6xf32>) -> tensor<3x2x6x5xf32>
    %29 = stablehlo.subtract %26, %28 : tensor<3x2x6x5xf32>
    %30 = stablehlo.exponential %29 : tensor<3x2x6x5xf32>
    %31 = stablehlo.iota dim = 2 : tensor<3x2x6x5xi32>
    %32 = stablehlo.iota dim = 3 : tensor<3x2x6x5xi32>
    %33 = stablehlo.constant dense<true> : tensor<3x2x6x5xi1>
    %34 = stablehlo.broadcast_in_dim %arg4, dims = [0] : (tensor<3xi32>) -> tensor<3x2x6x5xi32>
    %35 = stablehlo.compare LT, %32, %34, SIGNED : (tensor<3x2x6x5xi32>, tensor<3x2x6x5xi32>) -> tensor<3x2x6x5xi1>
    %36 = stablehlo.and %33, %35 : tensor<3x2x6x5xi1>
    %37 = stablehlo.constant dense<0x00000000> : tensor<3x2x6x5xf32>
    %38 = stablehlo.select %36, %30, %37 : tensor<3x2x6x5xi1>, tensor<3x2x6x5xf32>
    %39 = stablehlo.constant dense<0x00000000> : tensor<f32>
    %40 = stablehlo.reduce(%38 init: %39) applies stablehlo.add across dimensions = [3] : (tensor<3x2x6x5xf32>, tensor<f32>) -> tensor<3x2x6xf32>
    %41 = stablehlo.transpose %40, dims = [0, 2, 1] : (tensor<3x2x6xf32>) -> tensor<3x6x2xf32>
    %42 = stablehlo.constant dense<0x00000000> : tensor<3x6x2xf32>
    %43 = stablehlo.compare EQ, %41, %42, FLOAT : (tensor<3x6x2xf32>, tensor<3x6x2xf32>) -> tensor<3x6x2xi1>
    %44 = stablehlo.constant dense<0x3F800000> : tensor<3x6x2xf32>
    %45 = stablehlo.select %43, %44, %41 : tensor<3x6x2xi1>, tensor<3x6x2xf32>
    %46 = stablehlo.transpose %45, dims = [0, 2, 1] : (tensor<3x6x2xf32>) -> tensor<3x2x6xf32>
    %47 = stablehlo.broadcast_in_dim %46, dims = [0, 1, 2] : (tensor<3x2x6xf32>) -> tensor<3x2x6x5xf32>
    %48 = stablehlo.divide %38, %47 : tensor<3x2x6x5xf32>
    %49 = stablehlo.dot_general %48, %arg2, batching_dims = [0, 1] x [0, 2], contracting_dims = [3] x [1], precision = [HIGHEST, HIGHEST] : (tensor<3x2x6x5xf32>, tensor<3x5x2x4xf32>) -> tensor<3x2x6x4xf32>
    %50 = stablehlo.transpose %49, dims = [0, 2, 1, 3] : (tensor<3x2x6x4xf32>) -> tensor<3x6x2x4xf32>
    %51 = stablehlo.log %45 : tensor<3x6x2xf32>
    %52 = stablehlo.add %16, %51 : tensor<3x6x2xf32>
    return %50, %52 : tensor<3x6x2x4xf32>, tensor<3x6x2xf32>
  }
}
