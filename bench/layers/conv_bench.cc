// Measures convolutions and pools, with their gradients, on one thread: the least CPU time in ms.
//
//   conv_bench [ROUNDS [NAME..]]
//
// Prints one line per layer: its name, forward, gradient of the input, gradient of the kernel. The
// layers are those of peers/torch_conv.py; bench/convolutions.py prints both side by side.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include <tessera/functions.h>
#include <tessera/tessera.h>

namespace tessera::bench {
namespace {

struct Layer {
  const char* name;
  std::int64_t images, side, channels, features, window;
  std::int64_t stride = 1, groups = 1, dimensions = 2, dilation = 1;
  enum class Kind { conv, transposed, max_pool, avg_pool } kind = Kind::conv;
  DType dtype = DType::f32;
};

const std::vector<Layer>& layers() {
  using enum Layer::Kind;
  static const std::vector<Layer> kLayers = {
      {"128x32,16-16,3x3", 128, 32, 16, 16, 3},
      {"128x32,16-32,3x3,stride2", 128, 32, 16, 32, 3, 2},
      {"128x16,32-32,3x3", 128, 16, 32, 32, 3},
      {"128x8,64-64,3x3", 128, 8, 64, 64, 3},
      {"8x56,64-64,3x3", 8, 56, 64, 64, 3},
      {"8x14,256-256,3x3", 8, 14, 256, 256, 3},
      {"8x56,64-256,1x1", 8, 56, 64, 256, 1},
      {"4x224,3-64,7x7,stride2", 4, 224, 3, 64, 7, 2},
      {"128x32,3-16,3x3", 128, 32, 3, 16, 3},
      {"8x56,128,3x3,depthwise", 8, 56, 128, 128, 3, 1, 128},
      {"8x56,128-128,3x3,groups32", 8, 56, 128, 128, 3, 1, 32},
      {"8x28,64-64,4x4,transposed,stride2", 8, 28, 64, 64, 4, 2, 1, 2, 1, transposed},
      {"32x4096,32-32,5,1d", 32, 4096, 32, 32, 5, 1, 1, 1},
      {"4x24,16-32,3x3x3,3d", 4, 24, 16, 32, 3, 1, 1, 3},
      {"8x56,64-64,3x3,dilation2", 8, 56, 64, 64, 3, 1, 1, 2, 2},
      {"128x32,16-16,3x3,bf16", 128, 32, 16, 16, 3, 1, 1, 2, 1, conv, DType::bf16},
      {"128x32,16-32,3x3,stride2,bf16", 128, 32, 16, 32, 3, 2, 1, 2, 1, conv, DType::bf16},
      {"8x56,64-64,3x3,bf16", 8, 56, 64, 64, 3, 1, 1, 2, 1, conv, DType::bf16},
      {"8x14,256-256,3x3,bf16", 8, 14, 256, 256, 3, 1, 1, 2, 1, conv, DType::bf16},
      {"8x56,128,3x3,depthwise,bf16", 8, 56, 128, 128, 3, 1, 128, 2, 1, conv, DType::bf16},
      {"8x56,128-128,3x3,groups32,bf16", 8, 56, 128, 128, 3, 1, 32, 2, 1, conv, DType::bf16},
      {"32x56,64,max_pool3,stride2", 32, 56, 64, 64, 3, 2, 1, 2, 1, max_pool},
      {"32x56,64,avg_pool3,stride2", 32, 56, 64, 64, 3, 2, 1, 2, 1, avg_pool},
  };
  return kLayers;
}

std::vector<std::int64_t> repeated(const Layer& layer, std::int64_t value) {
  return std::vector<std::int64_t>(static_cast<std::size_t>(layer.dimensions), value);
}

bool has_kernel(const Layer& layer) {
  return layer.kind == Layer::Kind::conv || layer.kind == Layer::Kind::transposed;
}

Array apply(const Layer& layer, const Array& x, const Array& kernel) {
  const std::int64_t pad = layer.window / 2 * layer.dilation;
  const std::vector<std::pair<std::int64_t, std::int64_t>> around(
      static_cast<std::size_t>(layer.dimensions), {pad, pad});
  const auto window = repeated(layer, layer.window);
  const auto stride = repeated(layer, layer.stride);
  switch (layer.kind) {
    case Layer::Kind::max_pool:
      return max_pool(x, window, stride, around);
    case Layer::Kind::avg_pool:
      return avg_pool(x, window, stride, around);
    case Layer::Kind::transposed:
      return conv(x, kernel, {.padding = around, .input_dilation = stride});
    case Layer::Kind::conv:
      break;
  }
  return conv(x, kernel,
              {.strides = stride,
               .padding = around,
               .kernel_dilation = repeated(layer, layer.dilation),
               .feature_group_count = layer.groups});
}

double cpu_ms() {
  timespec time = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return 1e3 * static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_nsec);
}

double least_ms(int rounds, const std::function<Array()>& run) {
  double least = 1e9;
  for (int round = -1; round < rounds; ++round) {
    const double start = cpu_ms();
    run().block_until_ready();
    if (round >= 0) least = std::min(least, cpu_ms() - start);
  }
  return least;
}

void measure(const Layer& layer, int rounds) {
  const Key key(0);
  Shape image = repeated(layer, layer.side);
  image.insert(image.begin(), layer.images);
  image.push_back(layer.channels);
  Shape window = repeated(layer, layer.window);
  window.insert(window.end(), {layer.channels / layer.groups, layer.features});
  const Array x = astype(random::normal(random::fold_in(key, 0), image), layer.dtype);
  const Array kernel = astype(random::normal(random::fold_in(key, 1), window), layer.dtype);
  const auto forward = jit([&](Array a, Array b) { return apply(layer, a, b); });
  const Array y = forward(x, kernel);
  const Array cotangent = astype(random::normal(random::fold_in(key, 2), y.shape()), layer.dtype);
  // The cotangent is given, so that nothing but the layer is measured.
  const auto with_cotangent = custom_vjp(
      [](Array result, Array) { return sum(result); },
      [](Array result, Array given) { return std::pair(sum(result), given); },
      [](Array given, Array) { return std::tuple(given, zeros(given.shape(), given.dtype())); });
  const auto loss = [&](const Array& a, const Array& b, const Array& c) {
    return with_cotangent(apply(layer, a, b), c);
  };
  const auto of_x = jit([&](Array a, Array b, Array c) { return grad<0>(loss)(a, b, c); });
  const auto of_kernel = jit([&](Array a, Array b, Array c) { return grad<1>(loss)(a, b, c); });
  std::printf("%s %.2f", layer.name, least_ms(rounds, [&] { return forward(x, kernel); }));
  std::printf(" %.2f", least_ms(rounds, [&] { return of_x(x, kernel, cotangent); }));
  if (has_kernel(layer))
    std::printf(" %.2f", least_ms(rounds, [&] { return of_kernel(x, kernel, cotangent); }));
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 10;
  const std::vector<std::string> names(argv + std::min(argc, 2), argv + argc);
  tessera::set_num_threads(1);
  for (const auto& layer : tessera::bench::layers()) {
    const bool is_wanted =
        names.empty() || std::any_of(names.begin(), names.end(), [&](const std::string& name) {
          return std::string(layer.name).find(name) != std::string::npos;
        });
    if (is_wanted) tessera::bench::measure(layer, rounds);
  }
  return 0;
}
