"""The layers of recurrent_bench on PyTorch, in the same format: torch_recurrent.py [THREADS]"""
import os
import sys
import time

import torch
from torch import nn

CALLS = 10
torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else os.cpu_count())
torch.manual_seed(0)


def least_ms(function):
    least = float("inf")
    for _ in range(CALLS + 1):
        start = time.perf_counter()
        function()
        least = min(least, time.perf_counter() - start)
    return 1e3 * least


def measure(name, layer, batch, length, features):
    module = layer(features, features, batch_first=True)
    x = torch.randn(batch, length, features)

    def forward():
        with torch.no_grad():
            return module(x)[0].square().mean()

    def step():
        module.zero_grad()
        module(x)[0].square().mean().backward()

    print(f"{name:6} {batch:3} x {length:3}, {features:3} features: "
          f"forward {least_ms(forward):7.2f} ms, with gradients {least_ms(step):7.2f} ms")


for sizes in ((32, 128, 256), (64, 64, 512), (1, 256, 128)):
    measure("LSTM", nn.LSTM, *sizes)
    measure("GRU", nn.GRU, *sizes)
    measure("simple", nn.RNN, *sizes)
