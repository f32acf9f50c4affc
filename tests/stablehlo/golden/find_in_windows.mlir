module @tessera attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<3x6x5x2xf32>, %arg1: tensor<3x3x2x2xf32>) -> (tensor<3x3x2x2xi32>) {
    %0 = stablehlo.constant dense<-1> : tensor<3x3x2x2xi32>
    %1 = stablehlo.slice %arg0 [0:3:1, 0:5:2, 0:3:2, 0:2:1] : (tensor<3x6x5x2xf32>) -> tensor<3x3x2x2xf32>
    %2 = stablehlo.compare EQ, %1, %arg1, FLOAT : (tensor<3x3x2x2xf32>, tensor<3x3x2x2xf32>) -> tensor<3x3x2x2xi1>
    %3 = stablehlo.compare EQ, %0, %0, SIGNED : (tensor<3x3x2x2xi32>, tensor<3x3x2x2xi32>) -> tensor<3x3x2x2xi1>
    %4 = stablehlo.and %2, %3 : tensor<3x3x2x2xi1>
    %5 = stablehlo.constant dense<0> : tensor<3x3x2x2xi32>
    %6 = stablehlo.select %4, %5, %0 : tensor<3x3x2x2xi1>, tensor<3x3x2x2xi32>
    %7 = stablehlo.slice %arg0 [0:3:1, 0:5:2, 1:4:2, 0:2:1] : (tensor<3x6x5x2xf32>) -> tensor<3x3x2x2xf32>
    %8 = stablehlo.compare EQ, %7, %arg1, FLOAT : (tensor<3x3x2x2xf32>, tensor<3x3x2x2xf32>) -> tensor<3x3x2x2xi1>
    %9 = stablehlo.compare EQ, %6, %0, SIGNED : (tensor<3x3x2x2xi32>, tensor<3x3x2x2xi32>) -> tensor<3x3x2x2xi1>
    %10 = stablehlo.and %8, %9 : tensor<3x3x2x2xi1>
    %11 = stablehlo.constant dense<1> : tensor<3x3x2x2xi32>
    %12 = stablehlo.select %10, %11, %6 : tensor<3x3x2x2xi1>, tensor<3x3x2x2xi32>
    %13 = stablehlo.slice %arg0 [0:3:1, 1:6:2, 0:3:2, 0:2:1] : (tensor<3x6x5x2xf32>) -> tensor<3x3x2x2xf32>
    %14 = stablehlo.compare EQ, %13, %arg1, FLOAT : (tensor<3x3x2x2xf32>, tensor<3x3x2x2xf32>) -> tensor<3x3x2x2xi1>
    %15 = stablehlo.compare EQ, %12, %0, SIGNED : (tensor<3x3x2x2xi32>, tensor<3x3x2x2xi32>) -> tensor<3x3x2x2xi1>
    %16 = stablehlo.and %14, %15 : tensor<3x3x2x2xi1>
    %17 = stablehlo.constant dense<2> : tensor<3x3x2x2xi32>
    %18 = stablehlo.select %16, %17, %12 : tensor<3x3x2x2xi1>, tensor<3x3x2x2xi32>
    %19 = stablehlo.slice %arg0 [0:3:1, 1:6:2, 1:4:2, 0:2:1] : (tensor<3x6x5x2xf32>) -> tensor<3x3x2x2xf32>
    %20 = stablehlo.compare EQ, %19, %arg1, FLOAT : (tensor<3x3x2x2xf32>, tensor<3x3x2x2xf32>) -> tensor<3x3x2x2xi1>
    %21 = stablehlo.compare EQ, %18, %0, SIGNED : (tensor<3x3x2x2xi32>, tensor<3x3x2x2xi32>) -> tensor<3x3x2x2xi1>
    %22 = stablehlo.and %20, %21 : tensor<3x3x2x2xi1>
    %23 = stablehlo.constant dense<3> : tensor<3x3x2x2xi32>
    %24 = stablehlo.select %22, %23, %18 : tensor<3x3x2x2xi1>, tensor<3x3x2x2xi32>
    return %24 : tensor<3x3x2x2xi32>
  }
}
