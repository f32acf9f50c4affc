module @tessera attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<3xf32>, %arg1: tensor<3xf32>, %arg2: tensor<5x3xf32>) -> (tensor<3xf32>, tensor<5x3xf32>) {
    %0 = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.constant dense<0x00000000> : tensor<5x3xf32>
    %21:3 = "stablehlo.while"(%0, %arg1, %1) ({
      ^bb0(%2: tensor<i32>, %3: tensor<3xf32>, %4: tensor<5x3xf32>):
        %5 = stablehlo.constant dense<5> : tensor<i32>
        %6 = stablehlo.compare LT, %2, %5, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %6 : tensor<i1>
    }, {
      ^bb0(%7: tensor<i32>, %8: tensor<3xf32>, %9: tensor<5x3xf32>):
        %10 = stablehlo.constant dense<0> : tensor<i32>
        %11 = stablehlo.dynamic_slice %arg2, %7, %10, sizes = [1, 3] : (tensor<5x3xf32>, tensor<i32>, tensor<i32>) -> tensor<1x3xf32>
        %12 = stablehlo.reshape %11 : (tensor<1x3xf32>) -> tensor<3xf32>
        %13 = stablehlo.multiply %arg0, %8 : tensor<3xf32>
        %14 = stablehlo.add %13, %12 : tensor<3xf32>
        %15 = stablehlo.multiply %14, %12 : tensor<3xf32>
        %16 = stablehlo.constant dense<1> : tensor<i32>
        %17 = stablehlo.add %7, %16 : tensor<i32>
        %18 = stablehlo.reshape %15 : (tensor<3xf32>) -> tensor<1x3xf32>
        %19 = stablehlo.constant dense<0> : tensor<i32>
        %20 = stablehlo.dynamic_update_slice %9, %18, %7, %19 : (tensor<5x3xf32>, tensor<1x3xf32>, tensor<i32>, tensor<i32>) -> tensor<5x3xf32>
        stablehlo.return %17, %14, %20 : tensor<i32>, tensor<3xf32>, tensor<5x3xf32>
    }) : (tensor<i32>, tensor<3xf32>, tensor<5x3xf32>) -> (tensor<i32>, tensor<3xf32>, tensor<5x3xf32>)
    return %21#1, %21#2 : tensor<3xf32>, tensor<5x3xf32>
  }
}
