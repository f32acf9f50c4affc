module @tessera attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<i32>, %arg1: tensor<i32>, %arg2: tensor<5x6xf32>) -> (tensor<i32>, tensor<5x6xf32>) {
    %8:2 = "stablehlo.while"(%arg1, %arg2) ({
      ^bb0(%0: tensor<i32>, %1: tensor<5x6xf32>):
        %2 = stablehlo.compare LT, %0, %arg0, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %2 : tensor<i1>
    }, {
      ^bb0(%3: tensor<i32>, %4: tensor<5x6xf32>):
        %5 = stablehlo.constant dense<1> : tensor<i32>
        %6 = stablehlo.add %3, %5 : tensor<i32>
        %7 = stablehlo.add %4, %4 : tensor<5x6xf32>
        stablehlo.return %6, %7 : tensor<i32>, tensor<5x6xf32>
    }) : (tensor<i32>, tensor<5x6xf32>) -> (tensor<i32>, tensor<5x6xf32>)
    return %8#0, %8#1 : tensor<i32>, tensor<5x6xf32>
  }
}
