"""Matrices times vectors and times few rows, once and in each round of a loop, on the plugin and on
XLA's CPU backend in turns: the least microseconds of a product and of what follows it.

    JAX_PLATFORMS=tessera,cpu python few_rows.py [--calls N] [f32 | f64]

In a loop the matrix is the same in each round, as in recurrent layers and solvers.
"""
import argparse

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from common import least_times

ROUNDS = 200
RANDOM = np.random.default_rng(0)
# A product, and the shapes of its operands for matrices of n x n.
PRODUCTS = {
    "A x": (lambda a, x: a @ x, lambda n: ((n, n), (n,))),
    "x A": (lambda a, x: x @ a, lambda n: ((n, n), (n,))),
    "2 rows": (lambda a, x: x @ a, lambda n: ((n, n), (2, n))),
    "8 rows": (lambda a, x: x @ a, lambda n: ((n, n), (8, n))),
    "8 rows, A transposed": (lambda a, x: x @ a.T, lambda n: ((n, n), (8, n))),
    "16 rows": (lambda a, x: x @ a, lambda n: ((n, n), (16, n))),
    "16 matrices, A x": (lambda a, x: jnp.einsum("bij,bj->bi", a, x),
                         lambda n: ((16, n, n), (16, n))),
}


def in_loop(product, a, x):
    return lax.scan(lambda x, _: (jnp.sin(product(a, x)), None), x, None, length=ROUNDS)[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--calls", type=int, default=30, help="of each program")
    parser.add_argument("dtype", nargs="?", choices=("f32", "f64"), default="f32")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    dtype = {"f32": np.float32, "f64": np.float64}[options.dtype]
    print("once, and in a loop:")
    for name, (product, shapes) in PRODUCTS.items():
        for n in (16, 64, 256, 512):
            a, x = (RANDOM.normal(size=shape).astype(dtype) / dtype(n) ** dtype(0.5)
                    for shape in shapes(n))
            line = f"{name:22} {n:4}"
            for program, rounds in ((product, 1), (lambda a, x: in_loop(product, a, x), ROUNDS)):
                least = least_times(program, (a, x), options.calls)
                ours, theirs = (1e6 * least[backend] / rounds for backend in ("tessera", "cpu"))
                line += f"   {ours:8.2f} XLA {theirs:8.2f} {ours / theirs:5.2f}"
            print(line, flush=True)


main()
