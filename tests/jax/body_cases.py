"""body_cases.py: reductions, windows and scatters with custom bodies, exchanges in groups of
devices that are not axes of a mesh, random bits, and bits of half-precision numbers."""
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec as P

import cases
from cases import mesh_of, random, same

CASES = {}


def add(name, function, *arguments, tolerance=3e-6):
    assert name not in CASES, name
    CASES[name] = functools.partial(same, function, *arguments, tolerance=tolerance)


def integers(*shape, low=0, high=1 << 20, seed=0, dtype=np.int32):
    return np.random.RandomState(seed).randint(low, high, shape).astype(dtype)


# --- reductions

def log_add(a, b):
    greater = jnp.maximum(a, b)
    return greater + jnp.log1p(jnp.exp(-jnp.abs(a - b)))


def compose(a, b):
    """Composes affine functions, which does not commute."""
    return a[0] * b[0], a[1] * b[0] + b[1]


X = random(5, 7, 3)
LOWEST = np.float32(-np.inf)
for dims in ((0,), (1,), (2, 0), (0, 1, 2)):
    add(f"reduce_log_add_{dims}",
        lambda x, dims=dims: lax.reduce(x, LOWEST, log_add, dims), X)
    for join in (lax.bitwise_xor, lax.bitwise_and, lax.bitwise_or):
        first = np.int32(-1 if join is lax.bitwise_and else 0)
        add(f"reduce_{join.__name__}_{dims}",
            lambda x, dims=dims, join=join, first=first: lax.reduce(x, first, join, dims),
            integers(5, 7, 3))
add("reduce_two", lambda x: lax.reduce((x, x * 0.5), (np.float32(1), np.float32(0)), compose, (1,)),
    X / 3, tolerance=2e-5)
add("reduce_first", lambda x: lax.reduce(x, np.float32(2), lambda a, b: a * b * 1.0, (0,)), X)
add("reduce_nothing", lambda x: lax.reduce(x[:0], np.float32(2), log_add, (0,)), X)
for n in (1, 2, 9):
    add(f"argmax_bool_{n}", lambda x: (jnp.argmax(x), jnp.argmin(x)), random(n) > 1)

# --- windows

for window, stride, padding, base, gaps in (
        ((2, 3, 1), (1, 2, 1), "SAME", (1, 1, 1), (1, 1, 1)),
        ((5, 1, 2), (2, 1, 1), ((4, 1), (0, 0), (1, 1)), (1, 2, 1), (1, 1, 1)),
        ((2, 3, 2), (1, 1, 1), ((0, 0), (2, -1), (0, 1)), (2, 1, 1), (3, 2, 1))):
    for kind, first, join in (("log_add", LOWEST, log_add), ("sum", np.float32(0), lax.add),
                              ("product", np.float32(1), lax.mul), ("max", LOWEST, lax.max),
                              ("first", np.float32(3), lambda a, b: a + b * 1.0)):
        add(f"window_{kind}_{window}", lambda x, arguments=(first, join, window, stride, padding,
                                                             base, gaps):
            lax.reduce_window(x, *arguments), X, tolerance=1e-5)
add("cumlogsumexp", lambda x: (lax.cumlogsumexp(x, 1), lax.cumlogsumexp(x, 1, reverse=True)), X,
    tolerance=1e-5)

# --- scatters

PLACES = integers(40, high=6, seed=3) - 1  # some are out of range
UPDATES = random(40, 3, seed=4)
for kind in ("multiply", "max", "min", "add"):
    add(f"scatter_{kind}", lambda x, at, u, kind=kind: getattr(x.at[at], kind)(u, mode="drop"),
        random(5, 3), PLACES, UPDATES, tolerance=2e-5)
    add(f"scatter_part_{kind}", lambda x, at, u, kind=kind: getattr(x.at[at, 1], kind)(u[:, 0]),
        random(5, 3), PLACES, UPDATES, tolerance=2e-5)
    add(f"scatter_bf16_{kind}", lambda x, at, u, kind=kind: getattr(x.at[at], kind)(u),
        random(5, 3).astype(jnp.bfloat16), PLACES[:4], UPDATES[:4].astype(jnp.bfloat16))
for name, function in (("squared", lambda x: x * x - 0.5), ("cos", jnp.cos)):
    add(f"apply_{name}", lambda x, at, f=function: x.at[at].apply(f), random(5, 3), PLACES,
        tolerance=2e-5)
    add(f"apply_one_{name}", lambda x, at, f=function: x.at[at, at % 3].apply(f, mode="drop"),
        random(5, 3), PLACES, tolerance=2e-5)
add("apply_rows", jax.vmap(lambda x, at: x.at[at].apply(lambda v: v * 0.5 + 1)), random(4, 7),
    integers(4, 9, high=7, seed=5), tolerance=2e-5)
add("apply_integers", lambda x, at: x.at[at].apply(lambda v: v * 3 + 1), np.arange(10), PLACES)
add("segment_max", lambda u, at: (jax.ops.segment_max(u, at, 7), jax.ops.segment_prod(u, at, 7)),
    UPDATES, PLACES, tolerance=2e-5)
add("scatter_max_grad", jax.grad(lambda u: jnp.sum(jax.ops.segment_max(u, PLACES, 7)[:5] ** 2)),
    UPDATES)
NARROW = lax.ScatterDimensionNumbers(update_window_dims=(1,), inserted_window_dims=(0,),
                                     scatter_dims_to_operand_dims=(0,))
add("scatter_narrow", lambda x, u: lax.scatter_add(x, np.int32([[1], [1], [4]]), u, NARROW),
    random(5, 4), random(3, 2))
add("scatter_empty", lambda x: x[:0].at[:, 1].set(2.0), random(5, 3))

# --- products

for shape in ((4, 5), (1, 300)):
    pair = integers(*shape, low=-127, high=127, dtype=np.int8)
    add(f"dot_i8_i32_{shape}",
        lambda x: lax.dot(x, x.T, preferred_element_type=jnp.int32), pair)
    add(f"dot_bool_{shape}", lambda x: lax.dot(x > 0, x.T > 90), pair)
add("conv_i8_i32", lambda x, k: lax.conv_general_dilated(
    x, k, (1, 1), "SAME", preferred_element_type=jnp.int32),
    integers(1, 8, 6, 6, low=-127, high=127, dtype=np.int8),
    integers(4, 8, 3, 3, low=-127, high=127, dtype=np.int8, seed=1))
for features, batches in ((2, 1), (1, 2)):
    add(f"conv_no_space_{features}_{batches}",
        lambda x, k, f=features, b=batches: lax.conv_general_dilated(
            x, k, (), (), dimension_numbers=("NC", "OI", "NC"), feature_group_count=f,
            batch_group_count=b), random(6, 4), random(4, 4 // features, seed=1))
add("conv_of_nothing", lambda x, k: lax.conv_general_dilated(x, k, (1,), "VALID"),
    random(2, 3, 4), random(5, 3, 6))

# --- random bits

for dtype in (np.uint8, np.uint16, np.uint32):
    for shape in ((5,), (4, 3), (3, 5), (0, 2)):
        for algorithm in lax.RandomAlgorithm:
            add(f"bits_{np.dtype(dtype)}_{shape}_{algorithm.name}", functools.partial(
                lax.rng_bit_generator, shape=shape, dtype=dtype, algorithm=algorithm),
                np.uint32([1, 2, 0xFFFFFFFE, 4]))

# --- bits of half-precision numbers that the same program computes

HALVES = np.array([0.75, -3, 1e-3, 2e4, 0, -0.0, np.inf, 6e-8], np.float32)
for dtype, words in ((np.float16, np.int16), (jnp.bfloat16, np.uint16)):
    name = np.dtype(dtype).name
    number = HALVES.astype(dtype)
    add(f"frexp_{name}", jnp.frexp, number[:6])
    add(f"bits_of_{name}", lambda x, w=words: lax.bitcast_convert_type(x * 2 - x, w) >> w(3),
        number)
    add(f"{name}_of_bits", lambda i, t=dtype: lax.bitcast_convert_type(i + i // 3, t) * t(2),
        integers(64, high=9000, dtype=words))
    add(f"rows_of_bits_{name}", lambda x, w=words: jnp.ones((8, 5), w) * lax.bitcast_convert_type(
        x + x, w)[:, None], number)


# --- exchanges in groups

def in_groups(collective, wanted):
    groups = [[0, 3, 5, 6], [7, 1, 4, 2]]
    run = jax.jit(jax.shard_map(functools.partial(collective, axis_index_groups=groups),
                                mesh=mesh_of(8), in_specs=P("x"), out_specs=P("x"),
                                check_vma=False))
    x = random(8, 4, 2)
    found = np.asarray(run(x)).reshape(8, -1)
    for group in groups:
        for place, device in enumerate(group):
            np.testing.assert_allclose(found[device], wanted(x[group], place).ravel(), rtol=1e-5)


GROUPS = {
    "psum": (lambda a, **kw: lax.psum(a, "x", **kw), lambda g, i: g.sum(0)),
    "pmax": (lambda a, **kw: lax.pmax(a, "x", **kw), lambda g, i: g.max(0)),
    "all_gather": (lambda a, **kw: lax.all_gather(a[0], "x", **kw), lambda g, i: g),
    "psum_scatter": (lambda a, **kw: lax.psum_scatter(a[0], "x", tiled=True, **kw),
                     lambda g, i: g.sum(0)[i]),
    "all_to_all": (lambda a, **kw: lax.all_to_all(a[0], "x", 0, 0, tiled=True, **kw),
                   lambda g, i: g[:, i])}
for name, arguments in GROUPS.items():
    CASES[f"groups_{name}"] = functools.partial(in_groups, *arguments)


def has_same_bits(function, x):
    """Checks that one device and eight devices, which split the array, give the same bits."""
    wanted = jax.jit(function)(x)
    found = jax.jit(function)(jax.device_put(x, NamedSharding(mesh_of(8), P("x"))))
    np.testing.assert_array_equal(np.asarray(found), np.asarray(wanted))


SPREAD = random(24, 6)
for name, function in {
        "reduce": lambda x: lax.reduce(x, LOWEST, log_add, (0,)),
        "window": lambda x: lax.reduce_window(x, LOWEST, log_add, (5, 1), (1, 1), "SAME"),
        "scatter": lambda x: jax.ops.segment_prod(x, integers(24, high=5), 5),
        "bits": lambda x: jnp.frexp(x.astype(jnp.bfloat16))[0]}.items():
    CASES[f"mesh_{name}"] = functools.partial(has_same_bits, function, SPREAD)

if __name__ == "__main__":
    cases.main(CASES)
