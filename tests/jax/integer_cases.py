"""integer_cases.py: integers of 2 and 4 bits. JAX's CPU backend, which lacks operations on them,
computes the same in 8 bits, and the low bits are compared. Operations with two operands get all
pairs of numbers."""
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
FORMATS = [np.dtype(getattr(ml_dtypes, name)) for name in ("int4", "uint4", "int2", "uint2")]


def all_numbers(dtype):
    info = ml_dtypes.iinfo(dtype)
    return np.arange(info.min, info.max + 1).astype(dtype)


def random(dtype, *shape, seed=0):
    return np.random.RandomState(seed).choice(all_numbers(dtype), shape)


def low_bits(dtype, numbers):
    """The numbers of a narrow type."""
    bits = ml_dtypes.iinfo(dtype).bits
    numbers = np.asarray(numbers).astype(np.int64) & (2**bits - 1)
    return np.where(numbers > ml_dtypes.iinfo(dtype).max, numbers - 2**bits, numbers)


def in_bytes(x):
    """An array of a narrow type in 8 bits."""
    if np.asarray(x).dtype not in FORMATS:
        return x
    return x.astype(np.int8 if ml_dtypes.iinfo(x.dtype).min < 0 else np.uint8)


def equal(found, wanted):
    found = np.asarray(found)
    if found.dtype in FORMATS:
        found, wanted = found.astype(np.int64), low_bits(found.dtype, wanted)
    np.testing.assert_array_equal(found, np.asarray(wanted))


def same(function, *arguments):
    with jax.default_device(CPU):
        wanted = jax.tree.leaves(jax.jit(function)(*map(in_bytes, arguments)))
    found = jax.tree.leaves(jax.jit(function)(*arguments))
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted):
        equal(one, other)


def add_up(x):
    return lax.reduce_window(x, np.array(0, x.dtype), lax.add, (2, 2), (1, 1), "VALID")


def product(x, y, dtype):
    return lax.dot_general(x, y, (((1,), (0,)), ((), ())), preferred_element_type=dtype)


PAIRS = {
    "arithmetic": lambda x, y: (x + y, x - y, x * y, lax.div(x, y), lax.rem(x, y)),
    "order": lambda x, y: (jnp.maximum(x, y), jnp.minimum(x, y), x < y, x == y, x >= y),
    "bits": lambda x, y: (x & y, x | y, x ^ y, ~x),
    "one_operand": lambda x, y: (-x, jnp.sign(y), x**2, jnp.clip(x, y, y)),
    "select": lambda x, y: (jnp.where(x < y, x, y), lax.clamp(y, x, y)),
}
ARRAYS = {
    "moves": lambda x, y: (x.T, x[::2, 1:5], jnp.concatenate([x, y]), jnp.pad(x, 1), x.reshape(-1),
                           x[jnp.array([1, 3])], jnp.roll(x, 1), jnp.flip(y), x.at[2].set(y[0])),
    "sort": lambda x, y: (jnp.sort(x, axis=1), jnp.argsort(y, axis=1), jnp.argmax(y, axis=0)),
    "reduce": lambda x, y: (lax.reduce(x, np.array(0, x.dtype), lax.add, (1,)), x.max(axis=1),
                            lax.reduce(y, np.array(1, x.dtype), lax.mul, (0,)), x.min(axis=0),
                            lax.reduce(y, np.array(-1).astype(x.dtype),
                                       lambda a, b: a + b + np.array(1, a.dtype), (1,))),
    "cumulative": lambda x, y: (lax.cumsum(x, axis=1), lax.cummax(y, axis=0)),
    "window": lambda x, y: add_up(x),
    "scatter": lambda x, y: x.at[jnp.array([1, 1, 3])].add(y[:3]),
    "constants": lambda x, y: (x + jnp.asarray(1, x.dtype), lax.iota(x.dtype, 40), jnp.ones_like(x),
                               x * jnp.arange(12).astype(x.dtype)),
    "loop": lambda x, y: lax.fori_loop(0, 5, lambda i, s: s * x + y, x),
    "scan": lambda x, y: lax.scan(lambda c, row: (c + row, c), x[0], y),
    "cond": lambda x, y: lax.cond(x[0, 0] > 0, lambda: x + y, lambda: y),
    "product": lambda x, y: (product(x, y.T, jnp.int32), product(x, y.T, jnp.float32)),
}


def conversions(dtype):
    numbers = all_numbers(dtype)
    for wide in (np.int8, np.uint8, np.int16, np.int32, np.uint32, np.float32, ml_dtypes.bfloat16,
                 ml_dtypes.int4, ml_dtypes.uint4, bool):
        equal(jax.jit(lambda x: x.astype(wide))(numbers), in_bytes(numbers).astype(wide))
    for wide in (np.int8, np.uint8, np.int32):
        every = np.arange(-128, 128).astype(wide)
        equal(jax.jit(lambda x: x.astype(dtype))(every), every)
    floats = np.arange(int(numbers[0]), int(numbers[-1]) + 1, 0.25).astype(np.float32)
    equal(jax.jit(lambda x: x.astype(dtype))(floats), np.trunc(floats))


def reads_high_bits(dtype):
    """Shifts to the right, and counts of bits."""
    numbers, bits = all_numbers(dtype), ml_dtypes.iinfo(dtype).bits
    x, by = np.repeat(numbers, bits), np.tile(np.arange(bits), len(numbers)).astype(dtype)
    unsigned = in_bytes(x).astype(np.int64) & (2**bits - 1)
    signed = np.where(unsigned >= 2**(bits - 1), unsigned - 2**bits, unsigned)
    count = in_bytes(by).astype(np.int64)
    count[count < 0] += 2**bits
    equal(jax.jit(lax.shift_left)(x, by), unsigned << count)
    equal(jax.jit(lax.shift_right_logical)(x, by), unsigned >> count)
    equal(jax.jit(lax.shift_right_arithmetic)(x, by), signed >> count)
    equal(jax.jit(lax.population_count)(x), [int(n).bit_count() for n in unsigned])
    equal(jax.jit(lax.clz)(x), [bits - int(n).bit_length() for n in unsigned])


def words(dtype):
    """The first number is in the low bits."""
    bits = ml_dtypes.iinfo(dtype).bits
    for word in (np.uint8, np.int8, np.uint16, np.int32, np.float32):
        x = np.random.RandomState(0).randint(0, 256, 96).astype(np.uint8)
        parts = jax.jit(lambda x: lax.bitcast_convert_type(x, dtype))(x.view(word))
        places = np.arange(0, 8, bits, dtype=np.uint8)
        equal(parts, (x[:, None] >> places).reshape(parts.shape))
        back = jax.jit(lambda x: lax.bitcast_convert_type(x, word))(parts)
        np.testing.assert_array_equal(np.asarray(back).view(np.uint8), x)
    other = np.dtype(getattr(ml_dtypes, ("uint" if dtype.name[0] == "i" else "int") + str(bits)))
    equal(jax.jit(lambda x: lax.bitcast_convert_type(x, other))(all_numbers(dtype)),
          in_bytes(all_numbers(dtype)))


def quantized_layer(dtype):
    """Weights of a few bits, constants of the program, with a scale."""
    weights = random(dtype, 64, 32)
    x = np.random.RandomState(1).randint(-4, 5, (8, 64)).astype(np.float32)
    equal(jax.jit(lambda x: x @ (weights.astype(jnp.float32) * 0.5))(x),
          x @ (in_bytes(weights).astype(np.float32) * 0.5))


def on_eight_devices(dtype):
    x, y = random(dtype, 16, 24), random(dtype, 24, 8, seed=1)
    place = NamedSharding(mesh_of(8), P("x"))

    def work(x, y):
        return product(x, y, jnp.int32), lax.cumsum(x, axis=0), jnp.sort(x + x[::-1], axis=0)

    wanted = jax.jit(work)(x, y)
    found = jax.jit(work)(jax.device_put(x, place), y)
    for one, other in zip(found, wanted):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


def callbacks(dtype):
    x = random(dtype, 3, 5)
    equal(cases.transposed_in_python(x), in_bytes(x).T)


def bytes_of_other_values(dtype):
    """Only the low bits of a byte from the host count."""
    numbers = np.arange(256, dtype=np.uint8).view(dtype)
    equal(jax.jit(lambda x: x.astype(jnp.int32))(numbers), low_bits(dtype, np.arange(256)))


# JAX itself has few operations for 2 bits.
FOR_TWO_BITS = ("arithmetic", "moves", "constants", "cond", "product")
for dtype in FORMATS:
    has_all = ml_dtypes.iinfo(dtype).bits == 4
    numbers = all_numbers(dtype)
    pairs = np.repeat(numbers, len(numbers)), np.tile(numbers, len(numbers))
    arrays = random(dtype, 8, 12), random(dtype, 8, 12, seed=1)
    for functions, arguments in ((PAIRS, pairs), (ARRAYS, arrays)):
        for name, function in functions.items():
            if has_all or name in FOR_TWO_BITS:
                CASES[f"{name}_{dtype}"] = functools.partial(same, function, *arguments)
    for function in (conversions, words, quantized_layer, on_eight_devices, bytes_of_other_values,
                     callbacks, reads_high_bits):
        if has_all or function not in (reads_high_bits, on_eight_devices):
            CASES[f"{function.__name__}_{dtype}"] = functools.partial(function, dtype)

cases.main(CASES)
