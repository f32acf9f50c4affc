module @tessera attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<5x6xf32>) -> (tensor<5x3xf32>, tensor<5x3xi32>) {
    %0 = stablehlo.iota dim = 1 : tensor<5x6xi32>
    %10:2 = "stablehlo.sort"(%arg0, %0) ({
      ^bb0(%1: tensor<f32>, %2: tensor<f32>, %3: tensor<i32>, %4: tensor<i32>):
        %5 = stablehlo.compare LT, %2, %1, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
        %6 = stablehlo.compare NE, %1, %1, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
        %7 = stablehlo.compare EQ, %2, %2, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
        %8 = stablehlo.and %6, %7 : tensor<i1>
        %9 = stablehlo.or %5, %8 : tensor<i1>
        stablehlo.return %9 : tensor<i1>
    }) {dimension = 1 : i64, is_stable = true} : (tensor<5x6xf32>, tensor<5x6xi32>) -> (tensor<5x6xf32>, tensor<5x6xi32>)
    %11 = stablehlo.slice %10#0 [0:5:1, 0:3:1] : (tensor<5x6xf32>) -> tensor<5x3xf32>
    %12 = stablehlo.slice %10#1 [0:5:1, 0:3:1] : (tensor<5x6xi32>) -> tensor<5x3xi32>
    return %11, %12 : tensor<5x3xf32>, tensor<5x3xi32>
  }
}
