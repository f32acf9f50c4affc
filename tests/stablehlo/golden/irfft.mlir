module @tessera attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x4xf32>, %arg1: tensor<4x4xf32>) -> (tensor<4x6xf32>) {
    %0 = stablehlo.complex %arg0, %arg1 : tensor<4x4xcomplex<f32>>
    %1 = stablehlo.fft %0, type = IRFFT, length = [6] : (tensor<4x4xcomplex<f32>>) -> tensor<4x6xf32>
    %2 = stablehlo.constant dense<0x40C00000> : tensor<4x6xf32>
    %3 = stablehlo.multiply %1, %2 : tensor<4x6xf32>
    return %3 : tensor<4x6xf32>
  }
}
