module @tessera attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<3x6x5x12xf32>, %arg1: tensor<3x2x12x2xf32>) -> (tensor<3x4x4x2xf32>) {
    %0 = stablehlo.constant dense<0x00000000> : tensor<f32>
    %1 = stablehlo.convolution(%arg0, %arg1) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[0, 0], [0, 0]], lhs_dilate = [1, 1], rhs_dilate = [1, 1]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]} : (tensor<3x6x5x12xf32>, tensor<3x2x12x2xf32>) -> tensor<3x4x4x2xf32>
    return %1 : tensor<3x4x4x2xf32>
  }
}
