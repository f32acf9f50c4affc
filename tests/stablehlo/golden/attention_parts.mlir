module @tessera attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<1x3x2x1xf32>, %arg1: tensor<1x1032x1x1xf32>, %arg2: tensor<1x1032x1x1xf32>, %arg3: tensor<1x1x1x1032xf32>, %arg4: tensor<1xi32>) -> (tensor<4x1x3x2x3xf32>) {
    %0 = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.constant dense<0> : tensor<i32>
    %2 = stablehlo.constant dense<0> : tensor<i32>
    %3 = stablehlo.constant dense<0> : tensor<i32>
    %4 = stablehlo.add %1, %3 : tensor<i32>
    %5 = stablehlo.constant dense<0> : tensor<i32>
    %6 = stablehlo.add %0, %5 : tensor<i32>
    %7 = stablehlo.slice %arg1 [0:1:1, 0:258:1, 0:1:1, 0:1:1] : (tensor<1x1032x1x1xf32>) -> tensor<1x258x1x1xf32>
    %8 = stablehlo.slice %arg2 [0:1:1, 0:258:1, 0:1:1, 0:1:1] : (tensor<1x1032x1x1xf32>) -> tensor<1x258x1x1xf32>
    %9 = stablehlo.slice %arg3 [0:1:1, 0:1:1, 0:1:1, 0:258:1] : (tensor<1x1x1x1032xf32>) -> tensor<1x1x1x258xf32>
    %10 = stablehlo.broadcast_in_dim %7, dims = [0, 1, 2, 4] : (tensor<1x258x1x1xf32>) -> tensor<1x258x1x2x1xf32>
    %11 = stablehlo.reshape %10 : (tensor<1x258x1x2x1xf32>) -> tensor<1x258x2x1xf32>
    %12 = stablehlo.constant dense<0x3F000000> : tensor<1x3x2x1xf32>
    %13 = stablehlo.multiply %arg0, %12 : tensor<1x3x2x1xf32>
    %14 = stablehlo.dot_general %13, %11, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3], precision = [HIGHEST, HIGHEST] : (tensor<1x3x2x1xf32>, tensor<1x258x2x1xf32>) -> tensor<1x2x3x258xf32>
    %15 = stablehlo.reshape %9 : (tensor<1x1x1x258xf32>) -> tensor<1x258xf32>
    %16 = stablehlo.broadcast_in_dim %15, dims = [0, 3] : (tensor<1x258xf32>) -> tensor<1x2x3x258xf32>
    %17 = stablehlo.add %14, %16 : tensor<1x2x3x258xf32>
    %18 = stablehlo.constant dense<0xFF800000> : tensor<1x2x3x258xf32>
    %19 = stablehlo.iota dim = 2 : tensor<1x2x3x258xi32>
    %20 = stablehlo.broadcast_in_dim %6, dims = [] : (tensor<i32>) -> tensor<1x2x3x258xi32>
    %21 = stablehlo.add %19, %20 : tensor<1x2x3x258xi32>
    %22 = stablehlo.iota dim = 3 : tensor<1x2x3x258xi32>
    %23 = stablehlo.broadcast_in_dim %4, dims = [] : (tensor<i32>) -> tensor<1x2x3x258xi32>
    %24 = stablehlo.add %22, %23 : tensor<1x2x3x258xi32>
    %25 = stablehlo.constant dense<true> : tensor<1x2x3x258xi1>
    %26 = stablehlo.broadcast_in_dim %arg4, dims = [0] : (tensor<1xi32>) -> tensor<1x2x3x258xi32>
    %27 = stablehlo.compare LT, %24, %26, SIGNED : (tensor<1x2x3x258xi32>, tensor<1x2x3x258xi32>) -> tensor<1x2x3x258xi1>
    %28 = stablehlo.and %25, %27 : tensor<1x2x3x258xi1>
    %29 = stablehlo.select %28, %17, %18 : tensor<1x2x3x258xi1>, tensor<1x2x3x258xf32>
    %30 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %31 = stablehlo.reduce(%29 init: %30) applies stablehlo.maximum across dimensions = [3] : (tensor<1x2x3x258xf32>, tensor<f32>) -> tensor<1x2x3xf32>
    %32 = stablehlo.transpose %31, dims = [0, 2, 1] : (tensor<1x2x3xf32>) -> tensor<1x3x2xf32>
    %33 = stablehlo.constant dense<0xFF800000> : tensor<1x3x2xf32>
    %34 = stablehlo.compare EQ, %32, %33, FLOAT : (tensor<1x3x2xf32>, tensor<1x3x2xf32>) -> tensor<1x3x2xi1>
    %35 = stablehlo.constant dense<0x00000000> : tensor<1x3x2xf32>
    %36 = stablehlo.select %34, %35, %32 : tensor<1x3x2xi1>, tensor<1x3x2xf32>
    %37 = stablehlo.broadcast_in_dim %7, dims = [0, 1, 2, 4] : (tensor<1x258x1x1xf32>) -> tensor<1x258x1x2x1xf32>
    %38 = stablehlo.reshape %37 : (tensor<1x258x1x2x1xf32>) -> tensor<1x258x2x1xf32>
    %39 = stablehlo.constant dense<0x3F000000> : tensor<1x3x2x1xf32>
    %40 = stablehlo.multiply %arg0, %39 : tensor<1x3x2x1xf32>
    %41 = stablehlo.dot_general %40, %38, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3], precision = [HIGHEST, HIGHEST] : (tensor<1x3x2x1xf32>, tensor<1x258x2x1xf32>) -> tensor<1x2x3x258xf32>
    %42 = stablehlo.reshape %9 : (tensor<1x1x1x258xf32>) -> tensor<1x258xf32>
    %43 = stablehlo.broadcast_in_dim %42, dims = [0, 3] : (tensor<1x258xf32>) -> tensor<1x2x3x258xf32>
    %44 = stablehlo.add %41, %43 : tensor<1x2x3x258xf32>
    %45 = stablehlo.transpose %36, dims = [0, 2, 1] : (tensor<1x3x2xf32>) -> tensor<1x2x3xf32>
    %46 = stablehlo.broadcast_in_dim %45, dims = [0, 1, 2] : (tensor<1x2x3xf32>) -> tensor<1x2x3x258xf32>
    %47 = stablehlo.subtract %44, %46 : tensor<1x2x3x258xf32>
    %48 = stablehlo.exponential %47 : tensor<1x2x3x258xf32>
    %49 = stablehlo.iota dim = 2 : tensor<1x2x3x258xi32>
    %50 = stablehlo.broadcast_in_dim %6, dims = [] : (tensor<i32>) -> tensor<1x2x3x258xi32>
    %51 = stablehlo.add %49, %50 : tensor<1x2x3x258xi32>
    %52 = stablehlo.iota dim = 3 : tensor<1x2x3x258xi32>
    %53 = stablehlo.broadcast_in_dim %4, dims = [] : (tensor<i32>) -> tensor<1x2x3x258xi32>
    %54 = stablehlo.add %52, %53 : tensor<1x2x3x258xi32>
    %55 = stablehlo.constant dense<true> : tensor<1x2x3x258xi1>
    %56 = stablehlo.broadcast_in_dim %arg4, dims = [0] : (tensor<1xi32>) -> tensor<1x2x3x258xi32>
    %57 = stablehlo.compare LT, %54, %56, SIGNED : (tensor<1x2x3x258xi32>, tensor<1x2x3x258xi32>) -> tensor<1x2x3x258xi1>
    %58 = stablehlo.and %55, %57 : tensor<1x2x3x258xi1>
    %59 = stablehlo.constant dense<0x00000000> : tensor<1x2x3x258xf32>
    %60 = stablehlo.select %58, %48, %59 : tensor<1x2x3x258xi1>, tensor<1x2x3x258xf32>
    %61 = stablehlo.broadcast_in_dim %8, dims = [0, 1, 2, 4] : (tensor<1x258x1x1xf32>) -> tensor<1x258x1x2x1xf32>
    %62 = stablehlo.reshape %61 : (tensor<1x258x1x2x1xf32>) -> tensor<1x258x2x1xf32>
    %63 = stablehlo.dot_general %60, %62, batching_dims = [0, 1] x [0, 2], contracting_dims = [3] x [1], precision = [HIGHEST, HIGHEST] : (tensor<1x2x3x258xf32>, tensor<1x258x2x1xf32>) -> tensor<1x2x3x1xf32>
    %64 = stablehlo.transpose %63, dims = [0, 2, 1, 3] : (tensor<1x2x3x1xf32>) -> tensor<1x3x2x1xf32>
    %65 = stablehlo.reshape %32 : (tensor<1x3x2xf32>) -> tensor<1x3x2x1xf32>
    %66 = stablehlo.constant dense<0x00000000> : tensor<f32>
    %67 = stablehlo.reduce(%60 init: %66) applies stablehlo.add across dimensions = [3] : (tensor<1x2x3x258xf32>, tensor<f32>) -> tensor<1x2x3xf32>
    %68 = stablehlo.transpose %67, dims = [0, 2, 1] : (tensor<1x2x3xf32>) -> tensor<1x3x2xf32>
    %69 = stablehlo.reshape %68 : (tensor<1x3x2xf32>) -> tensor<1x3x2x1xf32>
    %70 = stablehlo.concatenate %64, %65, %69, dim = 3 : (tensor<1x3x2x1xf32>, tensor<1x3x2x1xf32>, tensor<1x3x2x1xf32>) -> tensor<1x3x2x3xf32>
    %71 = stablehlo.reshape %70 : (tensor<1x3x2x3xf32>) -> tensor<1x1x3x2x3xf32>
    %72 = stablehlo.constant dense<258> : tensor<i32>
    %73 = stablehlo.add %1, %72 : tensor<i32>
    %74 = stablehlo.constant dense<0> : tensor<i32>
    %75 = stablehlo.add %0, %74 : tensor<i32>
    %76 = stablehlo.slice %arg1 [0:1:1, 258:516:1, 0:1:1, 0:1:1] : (tensor<1x1032x1x1xf32>) -> tensor<1x258x1x1xf32>
    %77 = stablehlo.slice %arg2 [0:1:1, 258:516:1, 0:1:1, 0:1:1] : (tensor<1x1032x1x1xf32>) -> tensor<1x258x1x1xf32>
    %78 = stablehlo.slice %arg3 [0:1:1, 0:1:1, 0:1:1, 258:516:1] : (tensor<1x1x1x1032xf32>) -> tensor<1x1x1x258xf32>
    %79 = stablehlo.broadcast_in_dim %76, dims = [0, 1, 2, 4] : (tensor<1x258x1x1xf32>) -> tensor<1x258x1x2x1xf32>
    %80 = stablehlo.reshape %79 : (tensor<1x258x1x2x1xf32>) -> tensor<1x258x2x1xf32>
    %81 = stablehlo.constant dense<0x3F000000> : tensor<1x3x2x1xf32>
    %82 = stablehlo.multiply %arg0, %81 : tensor<1x3x2x1xf32>
    %83 = stablehlo.dot_general %82, %80, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3], precision = [HIGHEST, HIGHEST] : (tensor<1x3x2x1xf32>, tensor<1x258x2x1xf32>) -> tensor<1x2x3x258xf32>
    %84 = stablehlo.reshape %78 : (tensor<1x1x1x258xf32>) -> tensor<1x258xf32>
    %85 = stablehlo.broadcast_in_dim %84, dims = [0, 3] : (tensor<1x258xf32>) -> tensor<1x2x3x258xf32>
    %86 = stablehlo.add %83, %85 : tensor<1x2x3x258xf32>
    %87 = stablehlo.constant dense<0xFF800000> : tensor<1x2x3x258xf32>
    %88 = stablehlo.iota dim = 2 : tensor<1x2x3x258xi32>
    %89 = stablehlo.broadcast_in_dim %75, dims = [] : (tensor<i32>) -> tensor<1x2x3x258xi32>
    %90 = stablehlo.add %88, %89 : tensor<1x2x3x258xi32>
    %91 = stablehlo.iota dim = 3 : tensor<1x2x3x258xi32>
    %92 = stablehlo.broadcast_in_dim %73, dims = [] : (tensor<i32>) -> tensor<1x2x3x258xi32>
    %93 = stablehlo.add %91, %92 : tensor<1x2x3x258xi32>
    %94 = stablehlo.constant dense<true> : tensor<1x2x3x258xi1>
    %95 = stablehlo.broadcast_in_dim %arg4, dims = [0] : (tensor<1xi32>) -> tensor<1x2x3x258xi32>
    %96 = stablehlo.compare LT, %93, %95, SIGNED : (tensor<1x2x3x258xi32>, tensor<1x2x3x258xi32>) -> tensor<1x2x3x258xi1>
    %97 = stablehlo.and %94, %96 : tensor<1x2x3x258xi1>
    %98 = stablehlo.select %97, %86, %87 : tensor<1x2x3x258xi1>, tensor<1x2x3x258xf32>
    %99 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %100 = stablehlo.reduce(%98 init: %99) applies stablehlo.maximum across dimensions = [3] : (tensor<1x2x3x258xf32>, tensor<f32>) -> tensor<1x2x3xf32>
    %101 = stablehlo.transpose %100, dims = [0, 2, 1] : (tensor<1x2x3xf32>) -> tensor<1x3x2xf32>
    %102 = stablehlo.constant dense<0xFF800000> : tensor<1x3x2xf32>
    %103 = stablehlo.compare EQ, %101, %102, FLOAT : (tensor<1x3x2xf32>, tensor<1x3x2xf32>) -> tensor<1x3x2xi1>
    %104 = stablehlo.constant dense<0x00000000> : tensor<1x3x2xf32>
    %105 = stablehlo.select %103, %104, %101 : tensor<1x3x2xi1>, tensor<1x3x2xf32>
    %106 = stablehlo.broadcast_in_dim %76, dims = [0, 1, 2, 4] : (tensor<1x258x1x1xf32>) -> tensor<1x258x1x2x1xf32>
    %107 = stablehlo.reshape %106 : (tensor<1x258x1x2x1xf32>) -> tensor<1x258x2x1xf32>
    %108 = stablehlo.constant dense<0x3F000000> : tensor<1x3x2x1xf32>
    %109 = stablehlo.multiply %arg0, %108 : tensor<1x3x2x1xf32>
    %110 = stablehlo.dot_general %109, %107, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3], precision = [HIGHEST, HIGHEST] : (tensor<1x3x2x1xf32>, tensor<1x258x2x1xf32>) -> tensor<1x2x3x258xf32>
    %111 = stablehlo.reshape %78 : (tensor<1x1x1x258xf32>) -> tensor<1x258xf32>
    %112 = stablehlo.broadcast_in_dim %111, dims = [0, 3] : (tensor<1x258xf32>) -> tensor<1x2x3x258xf32>
    %113 = stablehlo.add %110, %112 : tensor<1x2x3x258xf32>
    %114 = stablehlo.transpose %105, dims = [0, 2, 1] : (tensor<1x3x2xf32>) -> tensor<1x2x3xf32>
    %115 = stablehlo.broadcast_in_dim %114, dims = [0, 1, 2] : (tensor<1x2x3xf32>) -> tensor<1x2x3x258xf32>
    %116 = stablehlo.subtract %113, %115 : tensor<1x2x3x258xf32>
    %117 = stablehlo.exponential %116 : tensor<1x2x3x258xf32>
    %118 = stablehlo.iota dim = 2 : tensor<1x2x3x258xi32>
    %119 = stablehlo.broadcast_in_dim %75, dims = [] : (tensor<i32>) -> tensor<1x2x3x258xi32>
    %120 = stablehlo.add %118, %119 : tensor<1x2x3x258xi32>
    %121 = stablehlo.iota dim = 3 : tensor<1x2x3x258xi32>
    %122 = stablehlo.broadcast_in_dim %73, dims = [] : (tensor<i32>) -> tensor<1x2x3x258xi32>
    %123 = stablehlo.add %121, %122 : tensor<1x2x3x258xi32>
    %124 = stablehlo.constant dense<true> : tensor<1x2x3x258xi1>
    %125 = stablehlo.broadcast_in_dim %arg4, dims = [0] : (tensor<1xi32>) -> tensor<1x2x3x258xi32>
    %126 = stablehlo.compare LT, %123, %125, SIGNED : (tensor<1x2x3x258xi32>, tensor<1x2x3x258xi32>) -> tensor<1x2x3x258xi1>
    %127 = stablehlo.and %124, %126 : tensor<1x2x3x258xi1>
    %128 = stablehlo.constant dense<0x00000000> : tensor<1x2x3x258xf32>
    %129 = stablehlo.select %127, %117, %128 : tensor<1x2x3x258xi1>, tensor<1x2x3x258xf32>
    %130 = stablehlo.broadcast_in_dim %77, dims = [0, 1, 2, 4] : (tensor<1x258x1x1xf32>) -> tensor<1x258x1x2x1xf32>
    %131 = stablehlo.reshape %130 : (tensor<1x258x1x2x1xf32>) -> tensor<1x258x2x1xf32>
    %132 = stablehlo.dot_general %129, %131, batching_dims = [0, 1] x [0, 2], contracting_dims = [3] x [1], precision = [HIGHEST, HIGHEST] : (tensor<1x2x3x258xf32>, tensor<1x258x2x1xf32>) -> tensor<1x2x3x1xf32>
    %133 = stablehlo.transpose %132, dims = [0, 2, 1, 3] : (tensor<1x2x3x1xf32>) -> tensor<1x3x2x1xf32>
    %134 = stablehlo.reshape %101 : (tensor<1x3x2xf32>) -> tensor<1x3x2x1xf32>
    %135 = stablehlo.constant dense<0x00000000> : tensor<f32>
    %136 = stablehlo.reduce(%129 init: %135) applies stablehlo.add across dimensions = [3] : (tensor<1x2x3x258xf32>, tensor<f32>) -> tensor<1x2x3xf32>
    %137 = stablehlo.transpose %136, dims = [0, 2, 1] : (tensor<1x2x3xf32>) -> tensor<1x3x2xf32>
    %138 = stablehlo.reshape %137 : (tensor<1x3x2xf32>) -> tensor<1x3x2x1xf32>
    %139 = stablehlo.concatenate %133, %134, %138, dim = 3 : (tensor<1x3x2x1xf32>, tensor<1x3x2x1xf32>, tensor<1x3x2x1xf32>) -> tensor<1x3x2x3xf32>
    %140 = stablehlo.reshape %139 : (tensor<1x3x2x3xf32>) -> tensor<1x1x3x2x3xf32>
    %141 = stablehlo.constant dense<516> : tensor<i32>
    %142 = stablehlo.add %1, %141 : tensor<i32>
    %143 = stablehlo.constant dense<0> : tensor<i32>
    %144 = stablehlo.add %0, %143 : tensor<i32>
    %145 = stablehlo.slice %arg1 [0:1:1, 516:774:1, 0:1:1, 0:1:1] : (tensor<1x1032x1x1xf32>) -> tensor<1x258x1x1xf32>
    %146 = stablehlo.slice %arg2 [0:1:1, 516:774:1, 0:1:1, 0:1:1] : (tensor<1x1032x1x1xf32>) -> tensor<1x258x1x1xf32>
    %147 = stablehlo.slice %arg3 [0:1:1, 0:1:1, 0:1:1, 516:774:1] : (tensor<1x1x1x1032xf32>) -> tensor<1x1x1x258xf32>
    %148 = stablehlo.broadcast_in_dim %145, dims = [0, 1, 2, 4] : (tensor<1x258x1x1xf32>) -> tensor<1x258x1x2x1xf32>
    %149 = stablehlo.reshape %148 : (tensor<1x258x1x2x1xf32>) -> tensor<1x258x2x1xf32>
    %150 = stablehlo.constant dense<0x3F000000> : tensor<1x3x2x1xf32>
    %151 = stablehlo.multiply %arg0, %150 : tensor<1x3x2x1xf32>
    %152 = stablehlo.dot_general %151, %149, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3], precision = [HIGHEST, HIGHEST] : (tensor<1x3x2x1xf32>, tensor<1x258x2x1xf32>) -> tensor<1x2x3x258xf32>
    %153 = stablehlo.reshape %147 : (tensor<1x1x1x258xf32>) -> tensor<1x258xf32>
    %154 = stablehlo.broadcast_in_dim %153, dims = [0, 3] : (tensor<1x258xf32>) -> tensor<1x2x3x258xf32>
    %155 = stablehlo.add %152, %154 : tensor<1x2x3x258xf32>
    %156 = stablehlo.constant dense<0xFF800000> : tensor<1x2x3x258xf32>
    %157 = stablehlo.iota dim = 2 : tensor<1x2x3x258xi32>
    %158 = stablehlo.broadcast_in_dim %144, dims = [] : (tensor<i32>) -> tensor<1x2x3x258xi32>
    %159 = stablehlo.add %157, %158 : tensor<1x2x3x258xi32>
    %160 = stablehlo.iota dim = 3 : tensor<1x2x3x258xi32>
    %161 = stablehlo.broadcast_in_dim %142, dims = [] : (tensor<i32>) -> tensor<1x2x3x258xi32>
    %162 = stablehlo.add %160, %161 : tensor<1x2x3x258xi32>
    %163 = stablehlo.constant dense<true> : tensor<1x2x3x258xi1>
    %164 = stablehlo.broadcast_in_dim %arg4, dims = [0] : (tensor<1xi32>) -> tensor<1x2x3x258xi32>
    %165 = stablehlo.compare LT, %162, %164, SIGNED : (tensor<1x2x3x258xi32>, tensor<1x2x3x258xi32>) -> tensor<1x2x3x258xi1>
    %166 = stablehlo.and %163, %165 : tensor<1x2x3x258xi1>
    %167 = stablehlo.select %166, %155, %156 : tensor<1x2x3x258xi1>, tensor<1x2x3x258xf32>
    %168 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %169 = stablehlo.reduce(%167 init: %168) applies stablehlo.maximum across dimensions = [3] : (tensor<1x2x3x258xf32>, tensor<f32>) -> tensor<1x2x3xf32>
    %170 = stablehlo.transpose %169, dims = [0, 2, 1] : (tensor<1x2x3xf32>) -> tensor<1x3x2xf32>
    %171 = stablehlo.constant dense<0xFF800000> : tensor<1x3x2xf32>
    %172 = stablehlo.compare EQ, %170, %171, FLOAT : (tensor<1x3x2xf32>, tensor<1x3x2xf32>) -> tensor<1x3x2xi1>
    %173 = stablehlo.constant dense<0x00000000> : tensor<1x3x2xf32>
    %174 = stablehlo.select %172, %173, %170 : tensor<1x3x2xi1>, tensor<1x3x2xf32>
    %175 = stablehlo.broadcast_in_dim %145, dims = [0, 1, 2, 4] : (tensor<1x258x1x1xf32>) -> tensor<1x258x1x2x1xf32>
    %176 = stablehlo.reshape %175 : (tensor<1x258x1x2x1xf32>) -> tensor<1x258x2x1xf32>
    %177 = stablehlo.constant dense<0x3F000000> : tensor<1x3x2x1xf32>
    %178 = stablehlo.multiply %arg0, %177 : tensor<1x3x2x1xf32>
    %179 = stablehlo.dot_general %178, %176, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3], precision = [HIGHEST, HIGHEST] : (tensor<1x3x2x1xf32>, tensor<1x258x2x1xf32>) -> tensor<1x2x3x258xf32>
    %180 = stablehlo.reshape %147 : (tensor<1x1x1x258xf32>) -> tensor<1x258xf32>
    %181 = stablehlo.broadcast_in_dim %180, dims = [0, 3] : (tensor<1x258xf32>) -> tensor<1x2x3x258xf32>
    %182 = stablehlo.add %179, %181 : tensor<1x2x3x258xf32>
    %183 = stablehlo.transpose %174, dims = [0, 2, 1] : (tensor<1x3x2xf32>) -> tensor<1x2x3xf32>
    %184 = stablehlo.broadcast_in_dim %183, dims = [0, 1, 2] : (tensor<1x2x3xf32>) -> tensor<1x2x3x258xf32>
    %185 = stablehlo.subtract %182, %184 : tensor<1x2x3x258xf32>
    %186 = stablehlo.exponential %185 : tensor<1x2x3x258xf32>
    %187 = stablehlo.iota dim = 2 : tensor<1x2x3x258xi32>
    %188 = stablehlo.broadcast_in_dim %144, dims = [] : (tensor<i32>) -> tensor<1x2x3x258xi32>
    %189 = stablehlo.add %187, %188 : tensor<1x2x3x258xi32>
    %190 = stablehlo.iota dim = 3 : tensor<1x2x3x258xi32>
    %191 = stablehlo.broadcast_in_dim %142, dims = [] : (tensor<i32>) -> tensor<1x2x3x258xi32>
    %192 = stablehlo.add %190, %191 : tensor<1x2x3x258xi32>
    %193 = stablehlo.constant dense<true> : tensor<1x2x3x258xi1>
    %194 = stablehlo.broadcast_in_dim %arg4, dims = [0] : (tensor<1xi32>) -> tensor<1x2x3x258xi32>
    %195 = stablehlo.compare LT, %192, %194, SIGNED : (tensor<1x2x3x258xi32>, tensor<1x2x3x258xi32>) -> tensor<1x2x3x258xi1>
    %196 = stablehlo.and %193, %195 : tensor<1x2x3x258xi1>
    %197 = stablehlo.constant dense<0x00000000> : tensor<1x2x3x258xf32>
    %198 = stablehlo.select %196, %186, %197 : tensor<1x2x3x258xi1>, tensor<1x2x3x258xf32>
    %199 = stablehlo.broadcast_in_dim %146, dims = [0, 1, 2, 4] : (tensor<1x258x1x1xf32>) -> tensor<1x258x1x2x1xf32>
    %200 = stablehlo.reshape %199 : (tensor<1x258x1x2x1xf32>) -> tensor<1x258x2x1xf32>
    %201 = stablehlo.dot_general %198, %200, batching_dims = [0, 1] x [0, 2], contracting_dims = [3] x [1], precision = [HIGHEST, HIGHEST] : (tensor<1x2x3x258xf32>, tensor<1x258x2x1xf32>) -> tensor<1x2x3x1xf32>
    %202 = stablehlo.transpose %201, dims = [0, 2, 1, 3] : (tensor<1x2x3x1xf32>) -> tensor<1x3x2x1xf32>
    %203 = stablehlo.reshape %170 : (tensor<1x3x2xf32>) -> tensor<1x3x2x1xf32>
    %204 = stablehlo.constant dense<0x00000000> : tensor<f32>
    %205 = stablehlo.reduce(%198 init: %204) applies stablehlo.add across dimensions = [3] : (tensor<1x2x3x258xf32>, tensor<f32>) -> tensor<1x2x3xf32>
    %206 = stablehlo.transpose %205, dims = [0, 2, 1] : (tensor<1x2x3xf32>) -> tensor<1x3x2xf32>
    %207 = stablehlo.reshape %206 : (tensor<1x3x2xf32>) -> tensor<1x3x2x1xf32>
    %208 = stablehlo.concatenate %202, %203, %207, dim = 3 : (tensor<1x3x2x1xf32>, tensor<1x3x2x1xf32>, tensor<1x3x2x1xf32>) -> tensor<1x3x2x3xf32>
    %209 = stablehlo.reshape %208 : (tensor<1x3x2x3xf32>) -> tensor<1x1x3x2x3xf32>
    %210 = stablehlo.constant dense<774> : tensor<i32>
    %211 = stablehlo.add %1, %210 : tensor<i32>
    %212 = stablehlo.constant dense<0> : tensor<i32>
    %213 = stablehlo.add %0, %212 : tensor<i32>
    %214 = stablehlo.slice %arg1 [0:1:1, 774:1032:1, 0:1:1, 0:1:1] : (tensor<1x1032x1x1xf32>) -> tensor<1x258x1x1xf32>
    %215 = stablehlo.slice %arg2 [0:1:1, 774:1032:1, 0:1:1, 0:1:1] : (tensor<1x1032x1x1xf32>) -> tensor<1x258x1x1xf32>
    %216 = stablehlo.slice %arg3 [0:1:1, 0:1:1, 0:1:1, 774:1032:1] : (tensor<1x1x1x1032xf32>) -> tensor<1x1x1x258xf32>
    %217 = stablehlo.broadcast_in_dim %214, dims = [0, 1, 2, 4] : (tensor<1x258x1x1xf32>) -> tensor<1x258x1x2x1xf32>
    %218 = stablehlo.reshape %217 : (tensor<1x258x1x2x1xf32>) -> tensor<1x258x2x1xf32>
    %219 = stablehlo.constant dense<0x3F000000> : tensor<1x3x2x1xf32>
    %220 = stablehlo.multiply %arg0, %219 : tensor<1x3x2x1xf32>
    %221 = stablehlo.dot_general %220, %218, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3], precision = [HIGHEST, HIGHEST] : (tensor<1x3x2x1xf32>, tensor<1x258x2x1xf32>) -> tensor<1x2x3x258xf32>
    %222 = stablehlo.reshape %216 : (tensor<1x1x1x258xf32>) -> tensor<1x258xf32>
    %223 = stablehlo.broadcast_in_dim %222, dims = [0, 3] : (tensor<1x258xf32>) -> tensor<1x2x3x258xf32>
    %224 = stablehlo.add %221, %223 : tensor<1x2x3x258xf32>
    %225 = stablehlo.constant dense<0xFF800000> : tensor<1x2x3x258xf32>
    %226 = stablehlo.iota dim = 2 : tensor<1x2x3x258xi32>
    %227 = stablehlo.broadcast_in_dim %213, dims = [] : (tensor<i32>) -> tensor<1x2x3x258xi32>
    %228 = stablehlo.add %226, %227 : tensor<1x2x3x258xi32>
    %229 = stablehlo.iota dim = 3 : tensor<1x2x3x258xi32>
    %230 = stablehlo.broadcast_in_dim %211, dims = [] : (tensor<i32>) -> tensor<1x2x3x258xi32>
    %231 = stablehlo.add %229, %230 : tensor<1x2x3x258xi32>
    %232 = stablehlo.constant dense<true> : tensor<1x2x3x258xi1>
    %233 = stablehlo.broadcast_in_dim %arg4, dims = [0] : (tensor<1xi32>) -> tensor<1x2x3x258xi32>
    %234 = stablehlo.compare LT, %231, %233, SIGNED : (tensor<1x2x3x258xi32>, tensor<1x2x3x258xi32>) -> tensor<1x2x3x258xi1>
    %235 = stablehlo.and %232, %234 : tensor<1x2x3x258xi1>
    %236 = stablehlo.select %235, %224, %225 : tensor<1x2x3x258xi1>, tensor<1x2x3x258xf32>
    %237 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %238 = stablehlo.reduce(%236 init: %237) applies stablehlo.maximum across dimensions = [3] : (tensor<1x2x3x258xf32>, tensor<f32>) -> tensor<1x2x3xf32>
    %239 = stablehlo.transpose %238, dims = [0, 2, 1] : (tensor<1x2x3xf32>) -> tensor<1x3x2xf32>
    %240 = stablehlo.constant dense<0xFF800000> : tensor<1x3x2xf32>
    %241 = stablehlo.compare EQ, %239, %240, FLOAT : (tensor<1x3x2xf32>, tensor<1x3x2xf32>) -> tensor<1x3x2xi1>
    %242 = stablehlo.constant dense<0x00000000> : tensor<1x3x2xf32>
    %243 = stablehlo.select %241, %242, %239 : tensor<1x3x2xi1>, tensor<1x3x2xf32>
    %244 = stablehlo.broadcast_in_dim %214, dims = [0, 1, 2, 4] : (tensor<1x258x1x1xf32>) -> tensor<1x258x1x2x1xf32>
    %245 = stablehlo.reshape %244 : (tensor<1x258x1x2x1xf32>) -> tensor<1x258x2x1xf32>
    %246 = stablehlo.constant dense<0x3F000000> : tensor<1x3x2x1xf32>
    %247 = stablehlo.multiply %arg0, %246 : tensor<1x3x2x1xf32>
    %248 = stablehlo.dot_general %247, %245, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3], precision = [HIGHEST, HIGHEST] : (tensor<1x3x2x1xf32>, tensor<1x258x2x1xf32>) -> tensor<1x2x3x258xf32>
    %249 = stablehlo.reshape %216 : (tensor<1x1x1x258xf32>) -> tensor<1x258xf32>
    %250 = stablehlo.broadcast_in_dim %249, dims = [0, 3] : (tensor<1x258xf32>) -> tensor<1x2x3x258xf32>
    %251 = stablehlo.add %248, %250 : tensor<1x2x3x258xf32>
    %252 = stablehlo.transpose %243, dims = [0, 2, 1] : (tensor<1x3x2xf32>) -> tensor<1x2x3xf32>
    %253 = stablehlo.broadcast_in_dim %252, dims = [0, 1, 2] : (tensor<1x2x3xf32>) -> tensor<1x2x3x258xf32>
    %254 = stablehlo.subtract %251, %253 : tensor<1x2x3x258xf32>
    %255 = stablehlo.exponential %254 : tensor<1x2x3x258xf32>
    %256 = stablehlo.iota dim = 2 : tensor<1x2x3x258xi32>
    %257 = stablehlo.broadcast_in_dim %213, dims = [] : (tensor<i32>) -> tensor<1x2x3x258xi32>
    %258 = stablehlo.add %256, %257 : tensor<1x2x3x258xi32>
    %259 = stablehlo.iota dim = 3 : tensor<1x2x3x258xi32>
    %260 = stablehlo.broadcast_in_dim %211, dims = [] : (tensor<i32>) -> tensor<1x2x3x258xi32>
    %261 = stablehlo.add %259, %260 : tensor<1x2x3x258xi32>
    %262 = stablehlo.constant dense<true> : tensor<1x2x3x258xi1>
    %263 = stablehlo.broadcast_in_dim %arg4, dims = [0] : (tensor<1xi32>) -> tensor<1x2x3x258xi32>
    %264 = stablehlo.compare LT, %261, %263, SIGNED : (tensor<1x2x3x258xi32>, tensor<1x2x3x258xi32>) -> tensor<1x2x3x258xi1>
    %265 = stablehlo.and %262, %264 : tensor<1x2x3x258xi1>
    %266 = stablehlo.constant dense<0x00000000> : tensor<1x2x3x258xf32>
    %267 = stablehlo.select %265, %255, %266 : tensor<1x2x3x258xi1>, tensor<1x2x3x258xf32>
    %268 = stablehlo.broadcast_in_dim %215, dims = [0, 1, 2, 4] : (tensor<1x258x1x1xf32>) -> tensor<1x258x1x2x1xf32>
    %269 = stablehlo.reshape %268 : (tensor<1x258x1x2x1xf32>) -> tensor<1x258x2x1xf32>
    %270 = stablehlo.dot_general %267, %269, batching_dims = [0, 1] x [0, 2], contracting_dims = [3] x [1], precision = [HIGHEST, HIGHEST] : (tensor<1x2x3x258xf32>, tensor<1x258x2x1xf32>) -> tensor<1x2x3x1xf32>
    %271 = stablehlo.transpose %270, dims = [0, 2, 1, 3] : (tensor<1x2x3x1xf32>) -> tensor<1x3x2x1xf32>
    %272 = stablehlo.reshape %239 : (tensor<1x3x2xf32>) -> tensor<1x3x2x1xf32>
    %273 = stablehlo.constant dense<0x00000000> : tensor<f32>
    %274 = stablehlo.reduce(%267 init: %273) applies stablehlo.add across dimensions = [3] : (tensor<1x2x3x258xf32>, tensor<f32>) -> tensor<1x2x3xf32>
    %275 = stablehlo.transpose %274, dims = [0, 2, 1] : (tensor<1x2x3xf32>) -> tensor<1x3x2xf32>
    %276 = stablehlo.reshape %275 : (tensor<1x3x2xf32>) -> tensor<1x3x2x1xf32>
    %277 = stablehlo.concatenate %271, %272, %276, dim = 3 : (tensor<1x3x2x1xf32>, tensor<1x3x2x1xf32>, tensor<1x3x2x1xf32>) -> tensor<1x3x2x3xf32>
    %278 = stablehlo.reshape %277 : (tensor<1x3x2x3xf32>) -> tensor<1x1x3x2x3xf32>
    %279 = stablehlo.concatenate %71, %140, %209, %278, dim = 0 : (tensor<1x1x3x2x3xf32>, tensor<1x1x3x2x3xf32>, tensor<1x1x3x2x3xf32>, tensor<1x1x3x2x3xf32>) -> tensor<4x1x3x2x3xf32>
    return %279 : tensor<4x1x3x2x3xf32>
  }
}
