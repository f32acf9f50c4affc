"""The steps between the products of a transformer, with their gradients, on the plugin and on XLA's
CPU backend in turns: the least milliseconds of a call, and Tessera's as a share of XLA's.

    JAX_PLATFORMS=tessera,cpu python transformer_parts.py [--dtype bfloat16] [--calls N] [NAME..]

Norms, the loss and the optimiser compute in f32, whatever the dtype. Only programs whose name
contains one of the NAMEs run.
"""
import argparse

import jax
import jax.numpy as jnp
import numpy as np

from common import least_times

RANDOM = np.random.default_rng(0)
PROGRAMS = {}  # name: (function, shapes of its arguments)
ROWS, FEATURES, HEADS, HEAD, CLASSES = 2048, 768, 8, 64, 4096
HIDDEN = (ROWS, FEATURES)
SCORES = (4, HEADS, 256, 256)
QUERIES = (4, 512, HEADS, HEAD)
LOGITS = (512, CLASSES)


def program(*shapes, has_gradient=True):
    def register(function):
        name = function.__name__
        PROGRAMS[name] = function, shapes
        if has_gradient:
            # A sum with random weights, because the gradient of a plain sum would be simpler.
            def loss(weights, *arguments):
                return (function(*arguments) * weights).astype(jnp.float32).sum()

            shape = jax.eval_shape(function, *(jnp.zeros(s) for s in shapes)).shape
            gradient = jax.grad(loss, tuple(range(1, 1 + len(shapes))))
            PROGRAMS[f"gradient of {name}"] = gradient, (shape, *shapes)
        return function
    return register


def wide(x):
    return x.astype(jnp.float32)


def ids(array, count):
    """Numbers below `count` that depend on an array of floats."""
    return (jnp.abs(wide(array)) * 1000).astype(jnp.int32) % count


@program(HIDDEN, (FEATURES,), (FEATURES,))
def layer_norm(x, scale, bias):
    mean = wide(x).mean(-1, keepdims=True)
    variance = jnp.square(wide(x)).mean(-1, keepdims=True) - mean * mean
    return ((wide(x) - mean) * jax.lax.rsqrt(variance + 1e-6) * scale + bias).astype(x.dtype)


@program(HIDDEN, HIDDEN, (FEATURES,), (FEATURES,))
def residual_and_layer_norm(x, y, scale, bias):
    return layer_norm(x + y, scale, bias)


@program(HIDDEN, (FEATURES,))
def rms_norm(x, scale):
    square = jnp.square(wide(x)).mean(-1, keepdims=True)
    return (wide(x) * jax.lax.rsqrt(square + 1e-6)).astype(x.dtype) * scale


@program(QUERIES, (HEAD,))
def norm_of_queries(q, scale):
    return rms_norm(q, scale)


@program(QUERIES)
def rotary_embedding(q):
    rates = 1 / 10000 ** (jnp.arange(0, HEAD, 2) / HEAD)
    angles = jnp.arange(q.shape[1])[:, None, None] * rates
    cos, sin = jnp.cos(angles).astype(q.dtype), jnp.sin(angles).astype(q.dtype)
    a, b = jnp.split(q, 2, -1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


@program(QUERIES, has_gradient=False)
def heads_first(q):
    return q.transpose(0, 2, 1, 3) * 2


@program(SCORES)
def masked_softmax(scores):
    is_seen = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    return jax.nn.softmax(jnp.where(is_seen, scores, jnp.finfo(scores.dtype).min))


@program(HIDDEN, (FEATURES,))
def bias(x, b):
    return x + b


@program(HIDDEN)
def gelu(x):
    return jax.nn.gelu(x)


@program((ROWS, 1536), (ROWS, 1536))
def swiglu(x, gate):
    return jax.nn.silu(gate) * x


@program(HIDDEN, has_gradient=False)
def dropout(x):
    keep = jax.random.bernoulli(jax.random.key(0), 0.9, x.shape)
    return jnp.where(keep, x / 0.9, 0).astype(x.dtype)


@program(LOGITS)
def cross_entropy(logits):
    labels = ids(logits[:, 0], CLASSES)
    logs = jax.nn.log_softmax(wide(logits))
    return -jnp.take_along_axis(logs, labels[:, None], 1).mean()


@program((CLASSES, FEATURES), has_gradient=False)
def embedding(table):
    return table[ids(table[:512, 0], CLASSES)]


@program((CLASSES, FEATURES), (512, FEATURES), has_gradient=False)
def gradient_of_embedding(table, cotangent):
    return jnp.zeros_like(table).at[ids(table[:512, 0], CLASSES)].add(cotangent)


@program(HIDDEN, has_gradient=False)
def norm(x):
    return jnp.sqrt(jnp.square(wide(x)).sum())


@program(HIDDEN, HIDDEN, HIDDEN, HIDDEN, has_gradient=False)
def adam(params, gradient, mean, square):
    mean = 0.9 * wide(mean) + 0.1 * wide(gradient)
    square = 0.99 * jnp.abs(wide(square)) + 0.01 * jnp.square(wide(gradient))
    return params - (1e-3 * mean / (jnp.sqrt(square) + 1e-8)).astype(params.dtype), mean, square


@program(LOGITS, has_gradient=False)
def next_token(logits):
    return logits.argmax(-1)


def main():
    args = argparse.ArgumentParser(description=__doc__,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--calls", type=int, default=50)
    args.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    args.add_argument("names", nargs="*")
    args = args.parse_args()
    print("| program | Tessera, ms | XLA CPU, ms | ratio |\n| --- | ---: | ---: | ---: |")
    for name, (function, shapes) in PROGRAMS.items():
        if args.names and not any(part in name for part in args.names):
            continue
        arguments = [jnp.asarray(RANDOM.standard_normal(shape), args.dtype) for shape in shapes]
        least = least_times(function, arguments, args.calls)
        print(f"| {name.replace('_', ' ')} | {1e3 * least['tessera']:.2f} | "
              f"{1e3 * least['cpu']:.2f} | {least['tessera'] / least['cpu']:.2f} |", flush=True)


main()
