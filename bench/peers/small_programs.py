"""Small JAX programs, most of which read a million numbers, on the plugin and on XLA's CPU backend
in turns: the least milliseconds of a call, and Tessera's as a share of XLA's, the worst last.

    JAX_PLATFORMS=tessera,cpu python small_programs.py [--calls N] [--above RATIO] [NAME..]

With JAX_ENABLE_X64=1, numbers are f64.

Only programs whose name contains one of the NAMEs run. With 0.05 ms or less a program is not shown:
that is the time of the call. Benchmarks of whole models do not find an op that is slow by itself.
"""
import argparse

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from common import least_times

ELEMENTS = 1_000_000
SIDE = 1_000
RANDOM = np.random.default_rng(0)
FLOAT = np.float64 if jax.config.jax_enable_x64 else np.float32
X, Y = (RANDOM.uniform(0.05, 0.95, ELEMENTS).astype(FLOAT) for _ in range(2))
M, N = X.reshape(SIDE, SIDE), Y.reshape(SIDE, SIDE)
I, J = (RANDOM.integers(1, SIDE, ELEMENTS).astype(np.int32) for _ in range(2))
K = I.reshape(SIDE, SIDE)
IDS = RANDOM.integers(0, SIDE, SIDE).astype(np.int32)
IMAGES = RANDOM.standard_normal((16, 56, 56, 64)).astype(FLOAT)
SPD = (M[:256, :256] @ M[:256, :256].T + 256 * np.eye(256)).astype(FLOAT)
FEW = X[:64]

ELEMENTWISE = """abs acos acosh arctan asin atanh cbrt ceil cos cosh deg2rad exp exp2 expm1 floor
    isfinite isnan log log10 log1p log2 negative reciprocal rint sign sin sinc sinh sqrt square tan
    tanh trunc nan_to_num i0""".split()
OF_TWO = """add arctan2 copysign divide equal floor_divide fmax fmin fmod hypot less logaddexp
    maximum minimum multiply nextafter power remainder subtract heaviside""".split()
OF_INTEGERS = """bitwise_and bitwise_xor floor_divide gcd left_shift maximum multiply power
    remainder right_shift subtract""".split()
REDUCTIONS = """all any argmax argmin count_nonzero max mean median min nanmax nanmean nansum prod
    ptp std sum var""".split()
CUMULATIVE = "cumsum cumprod cummax cummin cumlogsumexp".split()
ACTIVATIONS = """celu elu gelu glu hard_sigmoid hard_swish hard_tanh leaky_relu log_sigmoid
    log_softmax logsumexp mish relu relu6 selu sigmoid silu soft_sign softmax softplus squareplus
    standardize""".split()
SPECIAL = """bessel_i0e bessel_i1e digamma erf erf_inv erfc lgamma logistic rsqrt""".split()
DRAWS = """bernoulli beta cauchy exponential gumbel laplace logistic maxwell normal permutation
    rademacher truncated_normal uniform""".split()


def draw(name):
    arguments = {"beta": (2.0, 3.0), "permutation": (ELEMENTS,),
                 "truncated_normal": (-1.0, 1.0)}.get(name, ())
    keywords = {} if name == "permutation" else {"shape": (ELEMENTS,)}
    return lambda seed: getattr(jax.random, name)(jax.random.key(seed), *arguments, **keywords)


def tables():
    """Programs that consist of a single library function."""
    for name in ELEMENTWISE:
        yield f"jnp.{name}", getattr(jnp, name), (1 + X if name == "acosh" else X,)
    for name in OF_TWO:
        yield f"jnp.{name}", getattr(jnp, name), (X, Y)
    for name in OF_INTEGERS:
        yield f"jnp.{name} of i32", getattr(jnp, name), (I, J % 20)
    for name in REDUCTIONS:
        for axis in (None, 0, 1):
            yield (f"jnp.{name}, axis {axis}",
                   lambda m, name=name, axis=axis: getattr(jnp, name)(m, axis=axis), (M,))
    for name in CUMULATIVE:
        for axis in (0, 1):
            yield (f"lax.{name}, axis {axis}",
                   lambda m, name=name, axis=axis: getattr(lax, name)(m, axis=axis), (M,))
    for name in ACTIVATIONS:
        yield f"nn.{name}", getattr(jax.nn, name), (M,)
        if name != "logsumexp":
            yield (f"gradient of nn.{name}",
                   jax.grad(lambda m, name=name: getattr(jax.nn, name)(m).sum()), (M,))
    for name in SPECIAL:
        yield f"lax.{name}", getattr(lax, name), (X,)
    for name in DRAWS:
        yield f"random.{name}", draw(name), (1,)


def products():
    for spec in ("ij,jk->ik", "ji,jk->ik", "ij,kj->ik", "ij,ij->i", "ij,ij->", "ij,j->i",
                 "ij,i->j"):
        second = X[:SIDE] if spec in ("ij,j->i", "ij,i->j") else N
        yield f"einsum {spec}", lambda m, n, spec=spec: jnp.einsum(spec, m, n), (M, second)
    batch = X[:640_000].reshape(100, 80, 80)
    yield "einsum bij,bjk->bik", lambda b: jnp.einsum("bij,bjk->bik", b, b), (batch,)
    yield "einsum bij,bj->bi", lambda b: jnp.einsum("bij,bj->bi", b, b[:, 0]), (batch,)
    yield "dot of vectors", jnp.dot, (X, Y)
    yield "outer", jnp.outer, (X[:SIDE], Y[:SIDE])
    yield "kron", jnp.kron, (M[:32, :32], N[:32, :32])
    yield "polyval", lambda p, x: jnp.polyval(p, x), (FEW[:8], X)
    yield "convolve", lambda x, w: jnp.convolve(x, w, "same"), (X, FEW[:9])
    yield "product of i32", jnp.dot, (K[:256, :256], K[:256, :256])


def moves():
    yield "transpose", lambda m: m.T + 0, (M,)
    yield "transpose of three", lambda m: m.reshape(100, 100, 100).transpose(2, 0, 1) + 0, (M,)
    yield "concatenate, axis 1", lambda m, n: jnp.concatenate([m, n], 1), (M, N)
    yield "stack", lambda m, n: jnp.stack([m, n], -1), (M, N)
    yield "pad", lambda m: jnp.pad(m, 3), (M,)
    yield "pad by reflection", lambda m: jnp.pad(m, 3, mode="reflect"), (M,)
    yield "roll", lambda m: jnp.roll(m, (3, 5), (0, 1)), (M,)
    yield "flip", lambda m: jnp.flip(m, 1), (M,)
    yield "rot90", jnp.rot90, (M,)
    yield "tile", lambda m: jnp.tile(m, (2, 2)), (M,)
    yield "repeat", lambda m: jnp.repeat(m, 2, 1), (M,)
    yield "slices with steps", lambda m: m[::2, ::2] + m[1::2, 1::2], (M,)
    yield "tril", jnp.tril, (M,)
    yield "where", lambda m, n: jnp.where(m > n, m, n), (M, N)
    yield "clip", lambda m: jnp.clip(m, 0.2, 0.8), (M,)
    yield "select of three", lambda m, k: jnp.select([k < 9, k < 99], [m, -m], 0.0), (M, K)
    yield "diff", jnp.diff, (X,)
    yield "astype i8", lambda m: (m * 100).astype(jnp.int8), (M,)
    yield "astype bf16", lambda m: m.astype(jnp.bfloat16), (M,)
    yield "one_hot", lambda i: jax.nn.one_hot(i, SIDE), (IDS,)


def indexing():
    yield "rows", lambda m, i: m[i], (M, IDS)
    yield "columns", lambda m, i: m[:, i], (M, IDS)
    yield "elements", lambda x, i: x[i], (X, I)
    yield "points", lambda m, i, j: m[i, j], (M, I, J)
    yield "gradient of rows", jax.grad(lambda m, i: (m[i] ** 2).sum()), (M, IDS)
    yield "gradient of elements", jax.grad(lambda x, i: (x[i] ** 2).sum()), (X, I)
    yield "take_along_axis 0", lambda m, k: jnp.take_along_axis(m, k, 0), (M, K)
    yield "take_along_axis 1", lambda m, k: jnp.take_along_axis(m, k, 1), (M, K)
    yield "at set rows", lambda m, n, i: m.at[i].set(n), (M, N, IDS)
    yield "at add rows", lambda m, n, i: m.at[i].add(n), (M, N, IDS)
    yield "at max rows", lambda m, n, i: m.at[i].max(n), (M, N, IDS)
    yield "at add elements", lambda x, y, i: x.at[i].add(y), (X, Y, I)
    yield "segment_sum", lambda m, i: jax.ops.segment_sum(m, i, 100), (M, IDS % 100)
    yield "bincount", lambda i: jnp.bincount(i, length=SIDE), (I,)
    yield "histogram", lambda x: jnp.histogram(x, 64)[0], (X,)
    yield "searchsorted", lambda s, x: jnp.searchsorted(s, x), (np.sort(X[:SIDE]), X)
    yield "interp", lambda x, s, y: jnp.interp(x, s, y), (X, np.sort(X[:SIDE]), Y[:SIDE])
    yield "nonzero", lambda x: jnp.nonzero(x > 0.5, size=1000)[0], (X,)


def orders():
    yield "sort", jnp.sort, (X,)
    yield "sort rows", lambda m: jnp.sort(m, 1), (M,)
    yield "sort columns", lambda m: jnp.sort(m, 0), (M,)
    yield "argsort", jnp.argsort, (X,)
    yield "argsort of i32", jnp.argsort, (I,)
    yield "sort by two keys", lambda i, x: lax.sort((i, x), num_keys=2), (I, X)
    yield "top_k of 8", lambda m: lax.top_k(m, 8), (M,)
    yield "quantile", lambda m: jnp.quantile(m, 0.3, axis=1), (M,)
    yield "unique", lambda i: jnp.unique(i, size=SIDE), (I,)


def windows():
    yield "max_pool", lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1),
                                                  "SAME"), (IMAGES,)
    yield "sums of windows", lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 3, 3, 1),
                                                         (1, 1, 1, 1), "SAME"), (IMAGES,)
    yield "resize", lambda x: jax.image.resize(x, (16, 28, 28, 64), "bilinear"), (IMAGES,)
    yield "batch norm", lambda x: (x - x.mean((0, 1, 2))) * lax.rsqrt(x.var((0, 1, 2))), (IMAGES,)
    yield "layer norm", lambda x: (x - x.mean(-1, keepdims=True)) * lax.rsqrt(
        x.var(-1, keepdims=True)), (IMAGES,)
    yield "fft", jnp.fft.fft, (M,)
    yield "rfft", jnp.fft.rfft, (M,)
    yield "fft2", jnp.fft.fft2, (M,)


def loops():
    yield "fori_loop over a vector", lambda x: lax.fori_loop(
        0, 100, lambda i, x: x * 0.99 + 0.01, x), (X[:10_000],)
    yield "scan of steps of a cell", lambda w, x: lax.scan(
        lambda h, v: (jnp.tanh(h @ w + v),) * 2, x[0], x)[1], (M[:128, :128], M[:200, :128])
    yield "gradient of that scan", jax.grad(lambda w, x: lax.scan(
        lambda h, v: (jnp.tanh(h @ w + v),) * 2, x[0], x)[1].sum()), (M[:128, :128], M[:200, :128])
    yield "associative_scan", lambda m: lax.associative_scan(jnp.add, m), (M,)
    yield "map of rows", lambda m: lax.map(lambda row: jnp.sort(row)[:8], m), (M[:200],)
    yield "while of scalars", lambda x: lax.while_loop(
        lambda s: s[0] < 10_000, lambda s: (s[0] + 1, jnp.sin(s[1]) + x[0]), (0, 0.0)), (FEW,)
    yield "updates of one element", lambda x: lax.fori_loop(
        0, 1000, lambda i, x: x.at[i].set(x[i + 1] * 2), x), (X,)


def matrices():
    yield "cholesky", jnp.linalg.cholesky, (SPD,)
    yield "solve", jnp.linalg.solve, (SPD, M[:256, :8])
    yield "inv", jnp.linalg.inv, (SPD,)
    yield "det", jnp.linalg.det, (SPD,)
    yield "qr", jnp.linalg.qr, (M[:256, :256],)
    yield "eigh", jnp.linalg.eigh, (SPD,)
    yield "svd", lambda m: jnp.linalg.svd(m, full_matrices=False), (M[:256, :128],)
    yield "expm", jax.scipy.linalg.expm, (M[:64, :64] * 0.1,)


def programs():
    for group in (tables, products, moves, indexing, orders, windows, loops, matrices):
        yield from group()


def main():
    args = argparse.ArgumentParser(description=__doc__,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--calls", type=int, default=9)
    args.add_argument("--above", type=float, default=1.5, help="show programs above this ratio")
    args.add_argument("names", nargs="*")
    args = args.parse_args()
    found = []
    for name, function, arguments in programs():
        if args.names and not any(part in name for part in args.names):
            continue
        least = least_times(function, arguments, args.calls)
        found.append((least["tessera"] / least["cpu"], name, least))
    found.sort(key=lambda program: program[0])
    print("| program | Tessera, ms | XLA CPU, ms | ratio |\n| --- | ---: | ---: | ---: |")
    for ratio, name, least in found:
        if ratio > args.above and least["tessera"] > 5e-5:
            print(f"| {name} | {1e3 * least['tessera']:.2f} | {1e3 * least['cpu']:.2f} | "
                  f"{ratio:.2f} |")
    middle = found[len(found) // 2][0]
    faster = sum(ratio < 1 for ratio, *_ in found)
    print(f"\n{len(found)} programs, {faster} faster on Tessera; the middle ratio is {middle:.2f}")


main()
