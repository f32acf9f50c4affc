"""Recurrent layers of Flax on JAX's default platform: JAX_PLATFORMS=cpu flax_recurrent.py"""
import time

import flax.linen as nn
import jax

CALLS = 20


def least_ms(function, *arguments):
    least = float("inf")
    for _ in range(CALLS + 1):
        start = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        least = min(least, time.perf_counter() - start)
    return 1e3 * least


def measure(cell, batch, length, features):
    module = nn.RNN(cell(features))
    x = jax.random.normal(jax.random.key(0), (batch, length, features))
    params = module.init(jax.random.key(1), x)

    def loss(params, x):
        return (module.apply(params, x) ** 2).mean()

    print(f"{cell.__name__:17} {batch:3} x {length:3}, {features:3} features: "
          f"forward {least_ms(jax.jit(loss), params, x):7.2f} ms, "
          f"with gradients {least_ms(jax.jit(jax.value_and_grad(loss)), params, x):7.2f} ms")


for sizes in ((32, 128, 256), (1, 256, 128)):
    for cell in (nn.OptimizedLSTMCell, nn.LSTMCell, nn.GRUCell, nn.SimpleCell):
        measure(cell, *sizes)
