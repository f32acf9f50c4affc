module @tessera attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<5x6xf32>) -> (tensor<5x6xi32>) {
    %0 = stablehlo.constant dense<0xCF000000> : tensor<5x6xf32>
    %1 = stablehlo.compare LE, %arg0, %0, FLOAT : (tensor<5x6xf32>, tensor<5x6xf32>) -> tensor<5x6xi1>
    %2 = stablehlo.constant dense<0x4F000000> : tensor<5x6xf32>
    %3 = stablehlo.compare GE, %arg0, %2, FLOAT : (tensor<5x6xf32>, tensor<5x6xf32>) -> tensor<5x6xi1>
    %4 = stablehlo.constant dense<0xCF000000> : tensor<5x6xf32>
    %5 = stablehlo.compare GT, %arg0, %4, FLOAT : (tensor<5x6xf32>, tensor<5x6xf32>) -> tensor<5x6xi1>
    %6 = stablehlo.constant dense<0x4F000000> : tensor<5x6xf32>
    %7 = stablehlo.compare LT, %arg0, %6, FLOAT : (tensor<5x6xf32>, tensor<5x6xf32>) -> tensor<5x6xi1>
    %8 = stablehlo.and %5, %7 : tensor<5x6xi1>
    %9 = stablehlo.constant dense<0x00000000> : tensor<5x6xf32>
    %10 = stablehlo.select %8, %arg0, %9 : tensor<5x6xi1>, tensor<5x6xf32>
    %11 = stablehlo.convert %10 : (tensor<5x6xf32>) -> tensor<5x6xi32>
    %12 = stablehlo.constant dense<2147483647> : tensor<5x6xi32>
    %13 = stablehlo.select %3, %12, %11 : tensor<5x6xi1>, tensor<5x6xi32>
    %14 = stablehlo.constant dense<-2147483648> : tensor<5x6xi32>
    %15 = stablehlo.select %1, %14, %13 : tensor<5x6xi1>, tensor<5x6xi32>
    return %15 : tensor<5x6xi32>
  }
}
