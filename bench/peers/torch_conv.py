"""The layers of conv_bench on PyTorch: the least CPU time on one thread in ms, in the same format.

torch_conv.py [ROUNDS [NAME..]] [--contiguous]; arrays are channels-last without that flag."""
import argparse
import time

import torch
from torch.nn import functional as F

LAYERS = [  # name, images, side, channels, features, window, stride, groups, dims, dilation, kind
    ("128x32,16-16,3x3", 128, 32, 16, 16, 3, 1, 1, 2, 1, "conv"),
    ("128x32,16-32,3x3,stride2", 128, 32, 16, 32, 3, 2, 1, 2, 1, "conv"),
    ("128x16,32-32,3x3", 128, 16, 32, 32, 3, 1, 1, 2, 1, "conv"),
    ("128x8,64-64,3x3", 128, 8, 64, 64, 3, 1, 1, 2, 1, "conv"),
    ("8x56,64-64,3x3", 8, 56, 64, 64, 3, 1, 1, 2, 1, "conv"),
    ("8x14,256-256,3x3", 8, 14, 256, 256, 3, 1, 1, 2, 1, "conv"),
    ("8x56,64-256,1x1", 8, 56, 64, 256, 1, 1, 1, 2, 1, "conv"),
    ("4x224,3-64,7x7,stride2", 4, 224, 3, 64, 7, 2, 1, 2, 1, "conv"),
    ("128x32,3-16,3x3", 128, 32, 3, 16, 3, 1, 1, 2, 1, "conv"),
    ("8x56,128,3x3,depthwise", 8, 56, 128, 128, 3, 1, 128, 2, 1, "conv"),
    ("8x56,128-128,3x3,groups32", 8, 56, 128, 128, 3, 1, 32, 2, 1, "conv"),
    ("8x28,64-64,4x4,transposed,stride2", 8, 28, 64, 64, 4, 2, 1, 2, 1, "transposed"),
    ("32x4096,32-32,5,1d", 32, 4096, 32, 32, 5, 1, 1, 1, 1, "conv"),
    ("4x24,16-32,3x3x3,3d", 4, 24, 16, 32, 3, 1, 1, 3, 1, "conv"),
    ("8x56,64-64,3x3,dilation2", 8, 56, 64, 64, 3, 1, 1, 2, 2, "conv"),
    ("128x32,16-16,3x3,bf16", 128, 32, 16, 16, 3, 1, 1, 2, 1, "conv"),
    ("128x32,16-32,3x3,stride2,bf16", 128, 32, 16, 32, 3, 2, 1, 2, 1, "conv"),
    ("8x56,64-64,3x3,bf16", 8, 56, 64, 64, 3, 1, 1, 2, 1, "conv"),
    ("8x14,256-256,3x3,bf16", 8, 14, 256, 256, 3, 1, 1, 2, 1, "conv"),
    ("8x56,128,3x3,depthwise,bf16", 8, 56, 128, 128, 3, 1, 128, 2, 1, "conv"),
    ("8x56,128-128,3x3,groups32,bf16", 8, 56, 128, 128, 3, 1, 32, 2, 1, "conv"),
    ("32x56,64,max_pool3,stride2", 32, 56, 64, 64, 3, 2, 1, 2, 1, "max_pool"),
    ("32x56,64,avg_pool3,stride2", 32, 56, 64, 64, 3, 2, 1, 2, 1, "avg_pool"),
]

args = argparse.ArgumentParser()
args.add_argument("rounds", type=int, nargs="?", default=10)
args.add_argument("names", nargs="*")
args.add_argument("--contiguous", action="store_true")
args = args.parse_args()
torch.set_num_threads(1)
torch.manual_seed(0)


def layout(array):
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    if args.contiguous or array.dim() not in formats:
        return array
    return array.contiguous(memory_format=formats[array.dim()])


def least_ms(run):
    least = 1e9
    for i in range(args.rounds + 1):
        start = time.process_time()
        run()
        if i > 0:
            least = min(least, (time.process_time() - start) * 1e3)
    return least


def measure_pool(name, x, window, stride, kind):
    pool = {"max_pool": F.max_pool2d, "avg_pool": F.avg_pool2d}[kind]

    def forward():
        return pool(x, window, stride, window // 2)
    with torch.no_grad():
        times = [least_ms(forward)]
    x.requires_grad_(True)
    y = forward()
    cotangent = layout(torch.randn_like(y))
    times.append(least_ms(
        lambda: torch.autograd.grad(y, x, cotangent, retain_graph=True)))
    print(name, *(f"{t:.2f}" for t in times), flush=True)


def measure(name, images, side, channels, features, window, stride, groups, dims, dilation, kind):
    dtype = torch.bfloat16 if "bf16" in name else torch.float32
    x = layout(torch.randn(images, channels, *[side] * dims, dtype=dtype))
    if kind.endswith("pool"):
        return measure_pool(name, x, window, stride, kind)
    is_transposed = kind == "transposed"
    ends = (channels, features) if is_transposed else (features, channels // groups)
    kernel = layout(torch.randn(*ends, *[window] * dims, dtype=dtype))
    # A transposed convolution pads by window - 1 - pad around the elements that are spread.
    pad = window - 1 - window // 2 if is_transposed else window // 2 * dilation
    rest = ([stride] * dims, [pad] * dims, [dilation] * dims, is_transposed, [0] * dims, groups)

    def backward(wanted):
        return torch.ops.aten.convolution_backward(cotangent, x, kernel, None, *rest, wanted)

    with torch.no_grad():
        y = torch.ops.aten.convolution(x, kernel, None, *rest)
        cotangent = layout(torch.randn_like(y))
        times = [least_ms(lambda: torch.ops.aten.convolution(x, kernel, None, *rest)),
                 least_ms(lambda: backward([True, False, False])),
                 least_ms(lambda: backward([False, True, False]))]
    print(name, *(f"{t:.2f}" for t in times), flush=True)


for layer in LAYERS:
    if not args.names or any(name in layer[0] for name in args.names):
        measure(*layer)
