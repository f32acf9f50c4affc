"""Writes golden/conv.json from PyTorch itself: convolutions and pools of random shapes, with their
gradients.

Run in an environment with torch; the tests only read what it wrote. All elements are multiples of
1/8, so that every sum is exact and the numbers must be equal. Arrays are channels-last.
"""
import json
import pathlib
import random

import torch
from torch.nn import functional as F

FILE = pathlib.Path(__file__).parent / "golden" / "conv.json"
SEED = 20


def elements(shape, factor):
    """Row-major: element i is ((i * factor) mod 19 - 9) / 8. The test makes the same elements."""
    count = int(torch.tensor(shape).prod())
    return ((torch.arange(count) * factor % 19 - 9) / 8).reshape(shape)


def channels_first(x):
    return x.movedim(-1, 1)


def numbers(x):
    return x.movedim(1, -1).flatten().tolist()


def conv_case(r):
    space, groups = r.randint(1, 3), r.choice([1, 1, 2, 3, 8])
    inputs, features = r.randint(1, 3), r.randint(1, 3)
    case = {"kind": "conv", "groups": groups, "strides": [], "dilation": [], "spread": [],
            "padding": []}
    image, window = [r.randint(1, 2)], []
    is_transposed = r.random() < 0.3
    for _ in range(space):
        window.append(r.randint(1, 3))
        case["dilation"].append(r.choice([1, 1, 2]))
        extent = (window[-1] - 1) * case["dilation"][-1] + 1
        case["strides"].append(1 if is_transposed else r.randint(1, 3))
        case["spread"].append(r.randint(1, 3) if is_transposed else 1)
        # A transposed convolution pads by at most the extent - 1.
        case["padding"].append(r.randint(0, extent - 1) if is_transposed else r.randint(0, 2))
        image.append(r.randint(max(1, extent - 2 * case["padding"][-1]), 6))
    case["image"] = image + [inputs * groups]
    case["kernel"] = window + [inputs, features * groups]
    x, w = elements(case["image"], 7), elements(case["kernel"], 11)
    x.requires_grad_(), w.requires_grad_()
    kernel = w.movedim((-1, -2), (0, 1))  # [features, inputs, window]
    conv = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[space]
    transposed = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}[space]
    if is_transposed:
        # PyTorch reverses the kernel and gives it as [inputs, features / groups, window].
        kernel = kernel.flip(list(range(2, space + 2)))
        kernel = kernel.unflatten(0, (groups, features)).transpose(1, 2).flatten(0, 1)
        padding = [(k - 1) * d - p
                   for k, d, p in zip(window, case["dilation"], case["padding"])]
        y = transposed(channels_first(x), kernel, None, case["spread"], padding, 0, groups,
                       case["dilation"])
    else:
        y = conv(channels_first(x), kernel, None, case["strides"], case["padding"],
                 case["dilation"], groups)
    cotangent = channels_first(elements(list(y.movedim(1, -1).shape), 5))
    dx, dw = torch.autograd.grad(y, (x, w), cotangent)
    case.update(y=numbers(y), dx=dx.flatten().tolist(), dw=dw.flatten().tolist())
    return case


def pool_case(r):
    kind = r.choice(["max_pool", "avg_pool"])
    window = [r.choice([1, 2]), r.choice([2, 4])]  # powers of two: averages are exact
    strides = [r.randint(1, 3) for _ in window]
    padding = [r.randint(0, size // 2) for size in window]
    image = [2, r.randint(3, 7), r.randint(4, 7), r.randint(1, 20)]
    x = elements(image, 7).requires_grad_()
    pool = {"max_pool": F.max_pool2d, "avg_pool": F.avg_pool2d}[kind]
    y = pool(channels_first(x), window, strides, padding)
    cotangent = channels_first(elements(list(y.movedim(1, -1).shape), 5))
    dx, = torch.autograd.grad(y, x, cotangent)
    return {"kind": kind, "image": image, "window": window, "strides": strides,
            "padding": padding, "y": numbers(y), "dx": dx.flatten().tolist()}


def main():
    r = random.Random(SEED)
    cases = [conv_case(r) for _ in range(40)] + [pool_case(r) for _ in range(12)]
    content = {"made_by": "tests/peers/make_conv_golden.py",
               "versions": {"torch": torch.__version__.split("+")[0]}, "seed": SEED}
    lines = ",\n".join(json.dumps(case) for case in cases)
    FILE.write_text(json.dumps(content)[:-1] + ', "cases": [\n' + lines + "\n]}\n")


if __name__ == "__main__":
    main()
