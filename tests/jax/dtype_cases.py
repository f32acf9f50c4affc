"""dtype_cases.py: dtypes of 8, 16 and 64 bits, with JAX's x64 switched on."""
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec as P

import cases
from cases import mesh_of, same

jax.config.update("jax_enable_x64", True)
CASES = {}
INTEGERS = [np.dtype(sign + size) for sign in ("int", "uint") for size in ("8", "16", "32", "64")]
FLOATS = [np.dtype("float16"), np.dtype("float32"), np.dtype("float64")]
EXACT = {"float64": 1e-13, "float32": 3e-6, "float16": 2e-3}


def values(dtype, shape, seed=0, small=False):
    """Integers from the whole range, both ends included; floats of moderate size."""
    generator = np.random.RandomState(seed)
    if dtype.kind == "f":
        return (generator.standard_normal(shape) * 3).astype(dtype)
    ends = np.iinfo(dtype)
    if small:
        return generator.randint(max(ends.min, -9), 10, shape).astype(dtype)
    bits = generator.bytes(int(np.prod(shape)) * dtype.itemsize)
    drawn = np.frombuffer(bits, dtype).reshape(shape).copy()
    drawn.flat[:3] = [ends.min, ends.max, 1]
    return drawn


def add(name, function, *arguments, tolerance=3e-6):
    assert name not in CASES, name
    CASES[name] = functools.partial(same, function, *arguments, tolerance=tolerance)


ANY = ("add subtract multiply maximum minimum equal less greater_equal").split()
WHOLE = ("floor_divide remainder bitwise_and bitwise_or bitwise_xor left_shift right_shift").split()
for dtype in INTEGERS + FLOATS:
    x, y = values(dtype, (5, 70)), values(dtype, (5, 70), seed=1)
    bound = EXACT.get(dtype.name, 0)
    for name in ANY:
        add(f"{name}_{dtype}", getattr(jnp, name), x, y, tolerance=bound)
    for name in ("negative", "abs", "sign", "square"):
        add(f"{name}_{dtype}", getattr(jnp, name), x, tolerance=bound)
    # The tolerance is above 0 because XLA does not fix the order of sums.
    for name in "sum prod max min argmax argmin cumsum sort argsort any".split():
        few = values(dtype, (3, 9), seed=2, small=True)
        add(f"{name}_{dtype}", functools.partial(getattr(jnp, name), axis=1), few,
            tolerance=max(bound, 1e-12))
    add(f"where_{dtype}", lambda x, y: jnp.where(x > y, x, 3), x, y)
    add(f"clip_{dtype}", lambda x: jnp.clip(x, 1, 5), x)
    add(f"take_{dtype}", lambda x: x[jnp.array([3, 0, -1])], x)
    add(f"update_{dtype}", lambda x: x.at[1, 2:5].add(2).at[0].set(1), x, tolerance=bound)
    add(f"moves_{dtype}", lambda x: (x.T, x[::-1], jnp.concatenate([x, x]), jnp.pad(x, 1)), x)
    add(f"dot_{dtype}", lambda x, y: x @ y.T, values(dtype, (4, 33), small=True),
        values(dtype, (6, 33), seed=1, small=True), tolerance=max(bound, 1e-12))
    add(f"top_k_{dtype}", lambda x: lax.top_k(x, 4), x)
    for other in INTEGERS + FLOATS + [np.dtype(bool), np.dtype(jnp.bfloat16)]:
        small = values(dtype, (40,), small=True)
        given = np.abs(small) if other.kind == "u" else small
        add(f"from_{dtype}_to_{other}", lambda x, other=other: x.astype(other), given,
            tolerance=1e-7)
for dtype in INTEGERS:
    x, y = values(dtype, 200), values(dtype, 200, seed=1)
    for name in WHOLE:
        right = y % 40 if "shift" in name else np.where(y == 0, 1, y).astype(dtype)
        add(f"{name}_{dtype}", getattr(jnp, name), x, right)
    add(f"bits_{dtype}", lambda x: (lax.population_count(x), lax.clz(x), ~x), x)
    add(f"truncated_{dtype}", lambda x: [x.astype(other) for other in INTEGERS], x)
    add(f"as_floats_{dtype}", lambda x: (x.astype(jnp.float32), x.astype(jnp.float64),
                                         x.astype(jnp.bfloat16)), x, tolerance=1e-16)

FUNCTIONS = ("exp expm1 log1p sin cos tan tanh sinh cosh arcsinh arctan sqrt cbrt floor ceil round "
             "isfinite").split()
for dtype in (np.dtype("float16"), np.dtype("float64")):
    x = np.abs(values(dtype, 90)) / 2
    for name in FUNCTIONS:
        add(f"{name}_{dtype}", getattr(jnp, name), x, tolerance=EXACT[dtype.name])
    special = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, -1.0], dtype)
    add(f"special_{dtype}", lambda x: (jnp.maximum(x[:, None], x), jnp.sort(x), x[:, None] < x,
                                       jnp.sign(x), jnp.max(x), jnp.argmax(x)), special)
    add(f"grad_{dtype}", jax.grad(lambda x: jnp.sum(jnp.tanh(x) * x)), x,
        tolerance=EXACT[dtype.name])
x = values(np.dtype("float64"), 90)
add("erf", lambda x: (jax.scipy.special.erf(x), jax.scipy.special.erfc(x)), x, tolerance=1e-13)
add("erf_inv", jax.scipy.special.erfinv, np.tanh(x), tolerance=1e-12)
add("logistic", jax.nn.sigmoid, x, tolerance=1e-13)
add("large_constants", lambda x: (x + (2**62 + 3), x ^ -(2**61 + 1)), np.arange(3))
add("all_ones", lambda x: x & jnp.uint64(2**64 - 1), values(np.dtype("uint64"), 5))
add("loop", lambda x: lax.fori_loop(0, 5, lambda i, c: c * 0.5 + i, x), x, tolerance=1e-13)
add("while", lambda n: lax.while_loop(lambda c: c < 10**12, lambda c: c * 3, n), np.int64(7))
add("scan", lambda x: lax.scan(lambda c, y: (c + y, c * y), 0.0, x), x, tolerance=1e-12)
add("dynamic_slice", lambda x, i: lax.dynamic_slice(x, (i,), (5,)), x, np.int64(2**40))
add("uniform", lambda: jax.random.uniform(jax.random.key(3), (50,)), tolerance=0)
add("normal", lambda: jax.random.normal(jax.random.key(3), (50,)), tolerance=1e-13)
add("randint", lambda: jax.random.randint(jax.random.key(3), (50,), 0, 10**12))
add("permutation", lambda: jax.random.permutation(jax.random.key(3), 40))
images = values(np.dtype("float64"), (2, 8, 8, 3))
add("conv", lambda x, k: lax.conv_general_dilated(x, k, (1, 1), "SAME",
                                                  dimension_numbers=("NHWC", "HWIO", "NHWC")),
    images, values(np.dtype("float64"), (3, 3, 3, 4), seed=1), tolerance=1e-12)
add("max_pool", lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1),
                                            "VALID"), images)
for kind, window, strides, padding in itertools.product(
        (lax.max, lax.min), ((1, 2, 2, 1), (1, 3, 2, 2)), ((1, 2, 2, 1), (1, 1, 2, 1)),
        ("VALID", "SAME")):
    start = -jnp.inf if kind is lax.max else jnp.inf
    def pooled(x, kind=kind, start=start, window=window, strides=strides, padding=padding):
        y = lax.reduce_window(x, start, kind, window, strides, padding)
        return jnp.sum(y * jnp.cos(jnp.arange(y.size)).reshape(y.shape))
    # Small whole numbers have ties.
    for number, array in enumerate((images, np.round(images))):
        add(f"grad_{kind.__name__}_pool_{window}_{strides}_{padding}_{number}", jax.grad(pooled),
            array, tolerance=1e-13)
add("linspace", lambda: jnp.linspace(0, 1, 17), tolerance=1e-15)
add("segment_sum", lambda x: jax.ops.segment_sum(x, jnp.arange(90) % 7, 7), x, tolerance=1e-12)


def has_bits_of_one_device(dtype):
    x = values(dtype, (16, 24), small=True) if dtype.kind != "f" else values(dtype, (16, 24))
    f = jax.jit(lambda x: (x.sum(0), x @ x.T, jnp.sort(x, axis=0), x.max(), jnp.cumsum(x, axis=0)))
    wanted = f(x)
    for spec in (P("x"), P(None, "x")):
        found = f(jax.device_put(x, NamedSharding(mesh_of(8), spec)))
        for one, other in zip(found, wanted):
            np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


for dtype in FLOATS:
    scales = np.array([2.0 ** n for n in range(-15, 12)]).astype(dtype)
    ends = np.array([0, -0.0, np.inf, -np.inf, np.nan], dtype)
    numbers = np.concatenate([values(dtype, 27) * scales, ends])
    for exponent, mantissa in ((5, 10), (8, 7), (4, 3), (11, 20), (5, 52), (2, 0)):
        add(f"precision_{dtype}_{exponent}_{mantissa}", functools.partial(
            lax.reduce_precision, exponent_bits=exponent, mantissa_bits=mantissa), numbers,
            tolerance=0)
for shape in ((5,), (4, 3), (3, 5), (0, 2)):
    for algorithm in lax.RandomAlgorithm:
        add(f"bits_{shape}_{algorithm.name}", functools.partial(
            lax.rng_bit_generator, shape=shape, dtype=np.uint64, algorithm=algorithm),
            np.uint32([1, 2, 0xFFFFFFFE, 4]))

for dtype in INTEGERS + FLOATS:
    CASES[f"sharded_{dtype}"] = functools.partial(has_bits_of_one_device, dtype)

cases.main(CASES)
