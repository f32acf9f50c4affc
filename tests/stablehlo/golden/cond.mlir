module @tessera attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<i32>, %arg1: tensor<5x6xf32>, %arg2: tensor<5x6xf32>) -> (tensor<5x6xf32>) {
    %0 = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.maximum %arg0, %0 : tensor<i32>
    %2 = stablehlo.constant dense<2> : tensor<i32>
    %3 = stablehlo.minimum %1, %2 : tensor<i32>
    %7 = "stablehlo.case"(%3) ({
        %4 = stablehlo.add %arg1, %arg2 : tensor<5x6xf32>
        stablehlo.return %4 : tensor<5x6xf32>
    }, {
        %5 = stablehlo.multiply %arg1, %arg2 : tensor<5x6xf32>
        %6 = stablehlo.multiply %5, %arg2 : tensor<5x6xf32>
        stablehlo.return %6 : tensor<5x6xf32>
    }, {
        stablehlo.return %arg2 : tensor<5x6xf32>
    }) : (tensor<i32>) -> (tensor<5x6xf32>)
    return %7 : tensor<5x6xf32>
  }
}
