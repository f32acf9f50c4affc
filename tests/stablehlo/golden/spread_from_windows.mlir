module @tessera attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<3x3x2x2xi32>, %arg1: tensor<3x3x2x2xf32>) -> (tensor<3x6x5x2xf32>) {
    %0 = stablehlo.constant dense<-1> : tensor<i32>
    %1 = stablehlo.pad %arg0, %0, low = [0, 1, 1, 0], high = [0, 1, 2, 0], interior = [0, 1, 1, 0] : (tensor<3x3x2x2xi32>, tensor<i32>) -> tensor<3x7x6x2xi32>
    %2 = stablehlo.constant dense<0x00000000> : tensor<f32>
    %3 = stablehlo.pad %arg1, %2, low = [0, 1, 1, 0], high = [0, 1, 2, 0], interior = [0, 1, 1, 0] : (tensor<3x3x2x2xf32>, tensor<f32>) -> tensor<3x7x6x2xf32>
    %4 = stablehlo.constant dense<0x00000000> : tensor<3x6x5x2xf32>
    %5 = stablehlo.constant dense<0> : tensor<3x6x5x2xi32>
    %6 = stablehlo.slice %1 [0:3:1, 1:7:1, 1:6:1, 0:2:1] : (tensor<3x7x6x2xi32>) -> tensor<3x6x5x2xi32>
    %7 = stablehlo.compare EQ, %6, %5, SIGNED : (tensor<3x6x5x2xi32>, tensor<3x6x5x2xi32>) -> tensor<3x6x5x2xi1>
    %8 = stablehlo.slice %3 [0:3:1, 1:7:1, 1:6:1, 0:2:1] : (tensor<3x7x6x2xf32>) -> tensor<3x6x5x2xf32>
    %9 = stablehlo.select %7, %8, %4 : tensor<3x6x5x2xi1>, tensor<3x6x5x2xf32>
    %10 = stablehlo.constant dense<1> : tensor<3x6x5x2xi32>
    %11 = stablehlo.slice %1 [0:3:1, 1:7:1, 0:5:1, 0:2:1] : (tensor<3x7x6x2xi32>) -> tensor<3x6x5x2xi32>
    %12 = stablehlo.compare EQ, %11, %10, SIGNED : (tensor<3x6x5x2xi32>, tensor<3x6x5x2xi32>) -> tensor<3x6x5x2xi1>
    %13 = stablehlo.slice %3 [0:3:1, 1:7:1, 0:5:1, 0:2:1] : (tensor<3x7x6x2xf32>) -> tensor<3x6x5x2xf32>
    %14 = stablehlo.select %12, %13, %4 : tensor<3x6x5x2xi1>, tensor<3x6x5x2xf32>
    %15 = stablehlo.add %9, %14 : tensor<3x6x5x2xf32>
    %16 = stablehlo.constant dense<2> : tensor<3x6x5x2xi32>
    %17 = stablehlo.slice %1 [0:3:1, 0:6:1, 1:6:1, 0:2:1] : (tensor<3x7x6x2xi32>) -> tensor<3x6x5x2xi32>
    %18 = stablehlo.compare EQ, %17, %16, SIGNED : (tensor<3x6x5x2xi32>, tensor<3x6x5x2xi32>) -> tensor<3x6x5x2xi1>
    %19 = stablehlo.slice %3 [0:3:1, 0:6:1, 1:6:1, 0:2:1] : (tensor<3x7x6x2xf32>) -> tensor<3x6x5x2xf32>
    %20 = stablehlo.select %18, %19, %4 : tensor<3x6x5x2xi1>, tensor<3x6x5x2xf32>
    %21 = stablehlo.add %15, %20 : tensor<3x6x5x2xf32>
    %22 = stablehlo.constant dense<3> : tensor<3x6x5x2xi32>
    %23 = stablehlo.slice %1 [0:3:1, 0:6:1, 0:5:1, 0:2:1] : (tensor<3x7x6x2xi32>) -> tensor<3x6x5x2xi32>
    %24 = stablehlo.compare EQ, %23, %22, SIGNED : (tensor<3x6x5x2xi32>, tensor<3x6x5x2xi32>) -> tensor<3x6x5x2xi1>
    %25 = stablehlo.slice %3 [0:3:1, 0:6:1, 0:5:1, 0:2:1] : (tensor<3x7x6x2xf32>) -> tensor<3x6x5x2xf32>
    %26 = stablehlo.select %24, %25, %4 : tensor<3x6x5x2xi1>, tensor<3x6x5x2xf32>
    %27 = stablehlo.add %21, %26 : tensor<3x6x5x2xf32>
    return %27 : tensor<3x6x5x2xf32>
  }
}
