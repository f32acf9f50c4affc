module @tessera attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<5x6xf32>) -> (tensor<5x6xf32>) {
    %7 = "stablehlo.sort"(%arg0) ({
      ^bb0(%0: tensor<f32>, %1: tensor<f32>):
        %2 = stablehlo.compare LT, %0, %1, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
        %3 = stablehlo.compare NE, %1, %1, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
        %4 = stablehlo.compare EQ, %0, %0, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
        %5 = stablehlo.and %3, %4 : tensor<i1>
        %6 = stablehlo.or %2, %5 : tensor<i1>
        stablehlo.return %6 : tensor<i1>
    }) {dimension = 1 : i64, is_stable = true} : (tensor<5x6xf32>) -> (tensor<5x6xf32>)
    return %7 : tensor<5x6xf32>
  }
}
