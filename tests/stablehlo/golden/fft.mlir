module @tessera attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<6x2x3xf32>, %arg1: tensor<6x2x3xf32>) -> (tensor<6x2x3xf32>, tensor<6x2x3xf32>) {
    %0 = stablehlo.transpose %arg0, dims = [2, 1, 0] : (tensor<6x2x3xf32>) -> tensor<3x2x6xf32>
    %1 = stablehlo.transpose %arg1, dims = [2, 1, 0] : (tensor<6x2x3xf32>) -> tensor<3x2x6xf32>
    %2 = stablehlo.reshape %0 : (tensor<3x2x6xf32>) -> tensor<6x6xf32>
    %3 = stablehlo.reshape %1 : (tensor<3x2x6xf32>) -> tensor<6x6xf32>
    %4 = stablehlo.complex %2, %3 : tensor<6x6xcomplex<f32>>
    %5 = stablehlo.fft %4, type = IFFT, length = [6] : (tensor<6x6xcomplex<f32>>) -> tensor<6x6xcomplex<f32>>
    %6 = stablehlo.real %5 : (tensor<6x6xcomplex<f32>>) -> tensor<6x6xf32>
    %7 = stablehlo.imag %5 : (tensor<6x6xcomplex<f32>>) -> tensor<6x6xf32>
    %8 = stablehlo.constant dense<0x40C00000> : tensor<6x6xf32>
    %9 = stablehlo.multiply %6, %8 : tensor<6x6xf32>
    %10 = stablehlo.reshape %9 : (tensor<6x6xf32>) -> tensor<3x2x6xf32>
    %11 = stablehlo.constant dense<0x40C00000> : tensor<6x6xf32>
    %12 = stablehlo.multiply %7, %11 : tensor<6x6xf32>
    %13 = stablehlo.reshape %12 : (tensor<6x6xf32>) -> tensor<3x2x6xf32>
    %14 = stablehlo.transpose %10, dims = [2, 1, 0] : (tensor<3x2x6xf32>) -> tensor<6x2x3xf32>
    %15 = stablehlo.transpose %13, dims = [2, 1, 0] : (tensor<3x2x6xf32>) -> tensor<6x2x3xf32>
    return %14, %15 : tensor<6x2x3xf32>, tensor<6x2x3xf32>
  }
}
