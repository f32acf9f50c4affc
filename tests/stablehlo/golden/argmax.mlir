module @tessera attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<5x6xf32>) -> (tensor<5xi32>) {
    %0 = stablehlo.iota dim = 1 : tensor<5x6xi32>
    %1 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %2 = stablehlo.constant dense<2147483647> : tensor<i32>
    %21:2 = "stablehlo.reduce"(%arg0, %0, %1, %2) ({
      ^bb0(%3: tensor<f32>, %4: tensor<i32>, %5: tensor<f32>, %6: tensor<i32>):
        %7 = stablehlo.compare NE, %3, %3, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
        %8 = stablehlo.compare NE, %5, %5, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
        %9 = stablehlo.and %7, %8 : tensor<i1>
        %10 = stablehlo.compare EQ, %3, %5, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
        %11 = stablehlo.or %9, %10 : tensor<i1>
        %12 = stablehlo.not %8 : tensor<i1>
        %13 = stablehlo.and %7, %12 : tensor<i1>
        %14 = stablehlo.compare GT, %3, %5, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
        %15 = stablehlo.or %13, %14 : tensor<i1>
        %16 = stablehlo.compare LT, %4, %6, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
        %17 = stablehlo.and %11, %16 : tensor<i1>
        %18 = stablehlo.or %15, %17 : tensor<i1>
        %19 = stablehlo.select %18, %3, %5 : tensor<i1>, tensor<f32>
        %20 = stablehlo.select %18, %4, %6 : tensor<i1>, tensor<i32>
        stablehlo.return %19, %20 : tensor<f32>, tensor<i32>
    }) {dimensions = array<i64: 1>} : (tensor<5x6xf32>, tensor<5x6xi32>, tensor<f32>, tensor<i32>) -> (tensor<5xf32>, tensor<5xi32>)
    return %21#1 : tensor<5xi32>
  }
}
