"""float8_cases.py: floats of 8 and 4 bits. Conversions are compared with NumPy's for all bits and
for numbers next to the limits of rounding, operations with JAX's CPU backend."""
import functools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec as P

import cases
from cases import CPU, mesh_of

CASES = {}
FORMATS = [np.dtype(getattr(ml_dtypes, f"float{name}")) for name in
           ("8_e4m3fn", "8_e5m2", "8_e4m3b11fnuz", "8_e4m3fnuz", "8_e5m2fnuz", "8_e4m3", "8_e3m4",
            "8_e8m0fnu", "4_e2m1fn")]
UNLIKE_XLA = FORMATS[-2:]  # in products
POWERS = np.dtype(ml_dtypes.float8_e8m0fnu)  # has neither a sign nor 0


def num_bits(dtype):
    return ml_dtypes.finfo(dtype).bits


def all_numbers(dtype):
    return np.arange(2 ** num_bits(dtype), dtype=np.uint8).view(dtype)


def random(dtype, *shape, seed=0):
    numbers = np.random.RandomState(seed).standard_normal(shape) * 2
    return (np.exp2(numbers) if dtype == POWERS else numbers).astype(dtype)


def bits(x, kind):
    return lax.bitcast_convert_type(x, jnp.dtype(f"{kind}{num_bits(x.dtype)}"))


def same_numbers(found, wanted):
    """To the bit, but for the bits of NaN."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.dtype == wanted.dtype and found.shape == wanted.shape, (found, wanted)
    if wanted.dtype.kind not in "iub":
        found, wanted = found.astype(np.float64), wanted.astype(np.float64)
        is_number = ~np.isnan(wanted)
        np.testing.assert_array_equal(np.isnan(found), ~is_number)
        found, wanted = found[is_number], wanted[is_number]
        np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted))
    np.testing.assert_array_equal(found, wanted)


def exact(function, *arguments):
    """Both backends have the same numbers."""
    with jax.default_device(CPU):
        wanted = jax.tree.leaves(jax.jit(function)(*arguments))
    found = jax.tree.leaves(jax.jit(function)(*arguments))
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted):
        same_numbers(one, other)


def near(function, *arguments):
    """Sums are rounded once here, and after each step in XLA: two units in the last place."""
    with jax.default_device(CPU):
        wanted = np.asarray(jax.jit(function)(*arguments)).astype(np.float64)
    found = np.asarray(jax.jit(function)(*arguments)).astype(np.float64)
    scale = np.abs(wanted).max()
    np.testing.assert_allclose(found, wanted, rtol=0.5, atol=0.5 * scale)


def widens(dtype):
    numbers = all_numbers(dtype)
    for wide in (np.float32, np.float16, ml_dtypes.bfloat16):
        if np.isfinite(numbers.astype(wide)).sum() < np.isfinite(numbers.astype(np.float32)).sum():
            continue  # numbers that are too large
        same_numbers(jax.jit(lambda x: x.astype(wide))(numbers), numbers.astype(wide))


def narrows(dtype):
    """Ties go to even, and what is too large becomes infinity or NaN."""
    numbers = all_numbers(dtype).astype(np.float32)
    numbers = np.sort(numbers[np.isfinite(numbers)])
    halves = (numbers[1:] + numbers[:-1]) / 2
    beyond = numbers[-1] + (numbers[-1] - numbers[-2]) * np.float32([0.25, 0.5, 0.75, 1, 100])
    generator = np.random.RandomState(0)
    powers = np.exp2(generator.randint(-30, 20, 4000)).astype(np.float32)
    x = np.concatenate([
        numbers, halves, np.nextafter(halves, np.float32(np.inf)),
        np.nextafter(halves, np.float32(-np.inf)), beyond, -beyond,
        generator.standard_normal(4000).astype(np.float32) * powers,
        np.float32([0, -0.0, np.inf, -np.inf, np.nan, 1e-38, 1e-45, 3e38])])
    same_numbers(jax.jit(lambda x: x.astype(dtype))(x), x.astype(dtype))


def add_up(x):
    return lax.reduce_window(x, np.array(0, x.dtype), lax.add, (2, 2), (1, 1), "VALID")


def product(x, y, dtype):
    return lax.dot_general(x, y, (((1,), (0,)), ((), ())), preferred_element_type=dtype)


def multiplies(x, y):
    """XLA cannot multiply floats of 4 bits, and rounds sums of powers of two to powers of two."""
    wanted = x.astype(np.float32) @ y.astype(np.float32)
    for wide in (jnp.float32, jnp.bfloat16, jnp.float16):
        found = jax.jit(functools.partial(product, dtype=wide))(x, y)
        np.testing.assert_allclose(np.asarray(found, np.float32), wanted.astype(wide).astype(
            np.float32), rtol=3e-6 if wide == jnp.float32 else 0.01)


EXACT = {
    "arithmetic": lambda x, y: (x + y, x * y, x - y, -x, abs(x), jnp.sign(x), jnp.maximum(x, y)),
    "compare": lambda x, y: (x < y, x == y, x >= y, jnp.where(x < y, x, y), jnp.clip(x, -1, 1)),
    "moves": lambda x, y: (x.T, x[::2, 1:5], jnp.concatenate([x, y]), jnp.pad(x, 1), x.reshape(-1),
                           x[jnp.array([1, 3])], jnp.roll(x, 1), jnp.flip(y), x.at[2].set(y[0])),
    "order": lambda x, y: (jnp.sort(x, axis=1), x.max(axis=1), y.min(axis=0)),
    "constants": lambda x, y: (x * jnp.asarray(1.5, x.dtype), lax.iota(x.dtype, 9),
                               x + jnp.arange(12).astype(x.dtype)),
    # XLA takes the largest float of 4 bits for one that no integer can be.
    "integers": lambda x, y: (jnp.minimum(abs(x), 4).astype(jnp.int32), y.astype(bool),
                              jnp.arange(20).astype(x.dtype)),
    "formats": lambda x, y: (x.astype(jnp.float8_e5m2), y.astype(jnp.float8_e4m3fn),
                             x.astype(jnp.float16) + 1),
    "bits": lambda x, y: (bits(x, "uint"), bits(y, "int")),
    "cond": lambda x, y: lax.cond(x[0, 0] > 0, lambda: x, lambda: y),
    "loop": lambda x, y: lax.fori_loop(0, 3, lambda i, s: jnp.maximum(s, y), x),
    "gradient": lambda x, y: jax.grad(
        lambda w: (w.astype(x.dtype).astype(jnp.float32) ** 2).sum())(y.astype(jnp.float32)),
}
NEAR = {
    "functions": lambda x, y: jnp.exp(x) + jnp.tanh(y),
    "sum": lambda x, y: jnp.sum(x, axis=0),
    "cumsum": lambda x, y: jnp.cumsum(x, axis=1),
    "window": lambda x, y: add_up(x),
    "scatter": lambda x, y: x.at[jnp.array([1, 1, 3])].add(y[:3]),
    "scan": lambda x, y: lax.scan(lambda c, row: (c + row, c), x[0], y)[1],
    "product": lambda x, y: x @ y.T,
}
for dtype in FORMATS:
    x, y = random(dtype, 8, 12), random(dtype, 8, 12, seed=1)
    CASES[f"widens_{dtype}"] = functools.partial(widens, dtype)
    CASES[f"narrows_{dtype}"] = functools.partial(narrows, dtype)
    CASES[f"finite_{dtype}"] = functools.partial(
        exact, lambda x: (jnp.isnan(x), jnp.isfinite(x)), all_numbers(dtype))
    CASES[f"from_bits_{dtype}"] = functools.partial(
        exact, functools.partial(lax.bitcast_convert_type, new_dtype=dtype),
        all_numbers(dtype).view(np.uint8).astype(f"uint{num_bits(dtype)}"))
    for name, function in EXACT.items():
        CASES[f"{name}_{dtype}"] = functools.partial(exact, function, x, y)
    if dtype != POWERS:  # whose search starts with NaN in XLA
        CASES[f"places_{dtype}"] = functools.partial(exact, lambda x: jnp.argmin(x, axis=0), y)
    for name, function in NEAR.items():
        small = (array / np.array(4, dtype) for array in (x, y))
        CASES[f"{name}_{dtype}"] = functools.partial(near, function, *small)
    if dtype in UNLIKE_XLA:
        CASES[f"product_{dtype}"] = functools.partial(multiplies, x, random(dtype, 12, 6, seed=2))
        continue
    for wide in (jnp.float32, jnp.bfloat16, jnp.float16):
        for other in [dtype] if "fnuz" in dtype.name else [dtype, np.dtype(jnp.float8_e5m2)]:
            name = f"product_{dtype}_{other}_{np.dtype(wide)}"
            CASES[name] = functools.partial(cases.same, functools.partial(product, dtype=wide),
                                            x, random(other, 12, 6, seed=2), tolerance=3e-6)
    CASES[f"convolution_{dtype}"] = functools.partial(
        cases.same, lambda x, k: lax.conv_general_dilated(
            x, k, (1,), "SAME", preferred_element_type=jnp.float32),
        random(dtype, 2, 4, 12), random(dtype, 4, 4, 3, seed=3), tolerance=3e-6)


def has_bits_of_one_device(dtype):
    x = random(dtype, 16, 24)
    f = jax.jit(lambda x: (x.sum(0), x @ x.T, jnp.sort(x, axis=0), x.max(), x + x[:1]))
    wanted = f(x)
    for spec in (P("x"), P(None, "x")):
        found = f(jax.device_put(x, NamedSharding(mesh_of(8), spec)))
        for one, other in zip(found, wanted):
            same_numbers(one, other)


def sums_over_devices(dtype):
    x = random(dtype, 8, 4)
    mapped = jax.shard_map(lambda x: (lax.psum(x, "x"), lax.all_gather(x, "x")[:, 0]),
                           mesh=mesh_of(8), in_specs=P("x"), out_specs=(P(None), P(None)),
                           check_vma=False)
    total, rows = jax.jit(mapped)(x)
    same_numbers(rows, x)
    same_numbers(total[0], x.astype(np.float32).sum(0).astype(dtype))


def calls_back(dtype):
    x = random(dtype, 3, 5)
    same_numbers(cases.transposed_in_python(x), x.T)


for dtype in FORMATS:
    CASES[f"callback_{dtype}"] = functools.partial(calls_back, dtype)
    CASES[f"sharded_{dtype}"] = functools.partial(has_bits_of_one_device, dtype)
    CASES[f"mapped_{dtype}"] = functools.partial(sums_over_devices, dtype)

cases.main(CASES)
