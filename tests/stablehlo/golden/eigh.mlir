module @tessera attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x4xf32>) -> (tensor<4xf32>, tensor<4x4xf32>) {
    %0:2 = stablehlo.custom_call @Eigh(%arg0) {backend_config = "1,1,100,1e-6"} : (tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4xf32>)
    %1 = stablehlo.abs %0#0 : tensor<4x4xf32>
    %2 = stablehlo.constant dense<0x00000000> : tensor<f32>
    %3 = stablehlo.reduce(%1 init: %2) applies stablehlo.maximum across dimensions = [0] : (tensor<4x4xf32>, tensor<f32>) -> tensor<4xf32>
    %4 = stablehlo.constant dense<0x3F000000> : tensor<4xf32>
    %5 = stablehlo.multiply %3, %4 : tensor<4xf32>
    %6 = stablehlo.broadcast_in_dim %5, dims = [1] : (tensor<4xf32>) -> tensor<4x4xf32>
    %7 = stablehlo.compare GT, %1, %6, FLOAT : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xi1>
    %8 = stablehlo.iota dim = 0 : tensor<4x4xi32>
    %9 = stablehlo.constant dense<4> : tensor<4x4xi32>
    %10 = stablehlo.select %7, %8, %9 : tensor<4x4xi1>, tensor<4x4xi32>
    %11 = stablehlo.constant dense<4> : tensor<i32>
    %12 = stablehlo.reduce(%10 init: %11) applies stablehlo.minimum across dimensions = [0] : (tensor<4x4xi32>, tensor<i32>) -> tensor<4xi32>
    %13 = stablehlo.broadcast_in_dim %12, dims = [1] : (tensor<4xi32>) -> tensor<4x4xi32>
    %14 = stablehlo.compare EQ, %8, %13, SIGNED : (tensor<4x4xi32>, tensor<4x4xi32>) -> tensor<4x4xi1>
    %15 = stablehlo.sign %0#0 : tensor<4x4xf32>
    %16 = stablehlo.constant dense<0x00000000> : tensor<4x4xf32>
    %17 = stablehlo.select %14, %15, %16 : tensor<4x4xi1>, tensor<4x4xf32>
    %18 = stablehlo.constant dense<0x00000000> : tensor<f32>
    %19 = stablehlo.reduce(%17 init: %18) applies stablehlo.add across dimensions = [0] : (tensor<4x4xf32>, tensor<f32>) -> tensor<4xf32>
    %20 = stablehlo.broadcast_in_dim %19, dims = [1] : (tensor<4xf32>) -> tensor<4x4xf32>
    %21 = stablehlo.multiply %0#0, %20 : tensor<4x4xf32>
    return %0#1, %21 : tensor<4xf32>, tensor<4x4xf32>
  }
}
