module @tessera attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<5x6xf32>) -> (tensor<5x6xf32>) {
    %0 = stablehlo.constant dense<0x3F800000> : tensor<f32>
    %1 = stablehlo.slice %arg0 [0:5:1, 0:5:1] : (tensor<5x6xf32>) -> tensor<5x5xf32>
    %2 = stablehlo.pad %1, %0, low = [0, 1], high = [0, 0], interior = [0, 0] : (tensor<5x5xf32>, tensor<f32>) -> tensor<5x6xf32>
    %3 = stablehlo.multiply %arg0, %2 : tensor<5x6xf32>
    %4 = stablehlo.slice %3 [0:5:1, 0:4:1] : (tensor<5x6xf32>) -> tensor<5x4xf32>
    %5 = stablehlo.pad %4, %0, low = [0, 2], high = [0, 0], interior = [0, 0] : (tensor<5x4xf32>, tensor<f32>) -> tensor<5x6xf32>
    %6 = stablehlo.multiply %3, %5 : tensor<5x6xf32>
    %7 = stablehlo.slice %6 [0:5:1, 0:2:1] : (tensor<5x6xf32>) -> tensor<5x2xf32>
    %8 = stablehlo.pad %7, %0, low = [0, 4], high = [0, 0], interior = [0, 0] : (tensor<5x2xf32>, tensor<f32>) -> tensor<5x6xf32>
    %9 = stablehlo.multiply %6, %8 : tensor<5x6xf32>
    return %9 : tensor<5x6xf32>
  }
}
