"""cases.py: compares small JAX programs on Tessera with JAX's CPU backend. Prints what differs."""
import functools
import itertools
import sys
import traceback

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

CASES = {}  # name: function
CPU = jax.devices("cpu")[0]
DEVICES = np.array(jax.devices("tessera"))


def case(name, *functions_args):
    """Registers a function of no arguments that raises if something is wrong."""
    def register(function):
        CASES[name] = functools.partial(function, *functions_args)
        return function
    return register


def random(*shape, seed=0, dtype=np.float32):
    values = np.random.RandomState(seed).standard_normal(shape) * 2
    return (values * 4).astype(dtype) if np.issubdtype(dtype, np.integer) else values.astype(dtype)


def same(function, *arguments, tolerance=3e-6):
    """Checks that both backends agree, on integers and booleans exactly."""
    with jax.default_device(CPU):
        wanted = jax.tree.leaves(jax.jit(function)(*arguments))
    found = jax.tree.leaves(jax.jit(function)(*arguments))
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted):
        assert one.dtype == other.dtype and one.shape == other.shape, (one, other)
        one, other = np.asarray(one), np.asarray(other)
        if one.dtype.kind in "iub":
            np.testing.assert_array_equal(one, other)
            continue
        is_complex = one.dtype.kind == "c"
        wide = np.complex128 if is_complex else np.float64
        one, other = one.astype(wide), other.astype(wide)
        finite = np.abs(other[np.isfinite(other)])
        scale = max(1.0, float(finite.max())) if finite.size else 1.0
        half = {"bfloat16": 2e-2, "float16": 2e-3}
        bound = half.get(str(found[0].dtype), tolerance)
        for part in (np.real, np.imag) if is_complex else (np.real,):
            np.testing.assert_allclose(part(one), part(other), rtol=bound, atol=bound * scale)


def register_all(kind, functions, *arguments, tolerance=3e-6):
    for name, function in functions.items():
        CASES[f"{kind}_{name}"] = functools.partial(same, function, *arguments, tolerance=tolerance)


# --- elementwise

UNARY = ("abs ceil cos cosh exp expm1 floor log1p negative round sign sin sinh sqrt square tan "
         "tanh isfinite isnan arctan arcsinh cbrt reciprocal rint trunc").split()
for dtype in (np.float32, jnp.bfloat16):
    for name in UNARY:
        CASES[f"{name}_{np.dtype(dtype).name}"] = functools.partial(
            same, getattr(jnp, name), np.abs(random(3, 5)).astype(dtype))
BINARY = ("add subtract multiply divide maximum minimum power arctan2 equal not_equal less greater "
          "less_equal greater_equal hypot fmod logaddexp").split()
for name in BINARY:
    CASES[f"{name}_f32"] = functools.partial(
        same, getattr(jnp, name), np.abs(random(4, 3)), random(1, 3, seed=1), tolerance=1e-5)
for name in ("add", "subtract", "multiply", "maximum", "floor_divide", "remainder", "bitwise_and",
             "bitwise_or", "bitwise_xor", "left_shift", "right_shift"):
    for dtype in (np.int32, np.uint32):
        CASES[f"{name}_{np.dtype(dtype).name}"] = functools.partial(
            same, getattr(jnp, name), np.abs(random(9, dtype=dtype)),
            np.abs(random(9, seed=2, dtype=dtype)) % 31 + 1)
SPECIAL = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, -1.0, 1e-30, 3e38], np.float32)
register_all("special", {
    "relu": jax.nn.relu, "gelu": jax.nn.gelu, "silu": jax.nn.silu, "softplus": jax.nn.softplus,
    "maximum": lambda x: jnp.maximum(x[:, None], x[None]), "is_finite": jnp.isfinite,
    "less": lambda x: x[:, None] < x[None], "sort": jnp.sort, "argsort": jnp.argsort,
    "argmax": jnp.argmax, "max": jnp.max, "sign": jnp.sign, "nan_to_num": jnp.nan_to_num,
    "order": lambda x: lax.sort(x[::-1]), "bits": lambda x: lax.bitcast_convert_type(x, jnp.int32),
    "bf16": lambda x: x.astype(jnp.bfloat16)}, SPECIAL)
for exponent, mantissa in itertools.product((3, 5, 8), (2, 7, 10, 23)):
    CASES[f"reduce_precision_{exponent}_{mantissa}"] = functools.partial(
        same, functools.partial(lax.reduce_precision, exponent_bits=exponent,
                                mantissa_bits=mantissa),
        np.concatenate([SPECIAL[:7], random(30), random(30) * 1e3, random(30) * 1e-3]), tolerance=0)
for source, target in itertools.permutations((np.bool_, np.int32, np.uint32, np.float32), 2):
    CASES[f"convert_{np.dtype(source).name}_{np.dtype(target).name}"] = functools.partial(
        same, lambda x, target=target: x.astype(target), np.abs(random(8)).astype(source))

# --- shapes, indices, reductions

X = random(4, 6, 5)
register_all("shape", {
    "reshape": lambda x: x.reshape(8, 15), "transpose": lambda x: x.transpose(2, 0, 1),
    "slice": lambda x: x[1:3, ::2, ::-1], "pad": lambda x: jnp.pad(x, ((1, 2), (0, 0), (3, 0))),
    "pad_negative": lambda x: lax.pad(x, 0.0, ((-1, 2, 1), (0, -2, 0), (1, 1, 2))),
    "concatenate": lambda x: jnp.concatenate([x, x + 1], 1), "stack": lambda x: jnp.stack([x, -x]),
    "tile": lambda x: jnp.tile(x, (2, 1, 3)), "roll": lambda x: jnp.roll(x, 2, 1),
    "flip": lambda x: jnp.flip(x, 2), "repeat": lambda x: jnp.repeat(x, 3, 1),
    "split": lambda x: jnp.split(x, 3, 1), "where": lambda x: jnp.where(x > 0, x, 7),
    "triu": lambda x: jnp.triu(x[0]), "diag": lambda x: jnp.diag(x[0, 0]), "iota": lambda x:
    lax.broadcasted_iota(jnp.int32, x.shape, 1), "einsum":
    lambda x: jnp.einsum("abc,abd->bcd", x, x)},
    X)
register_all("index", {
    "take": lambda x: jnp.take(x, jnp.array([3, 0, 9, -1]), axis=1), "row": lambda x: x[2],
    "fancy": lambda x: x[jnp.array([0, 3]), jnp.array([1, 5])],
    "along": lambda x: jnp.take_along_axis(x, jnp.argsort(x, 1), 1),
    "set": lambda x: x.at[1, :, 2].set(9.0), "add": lambda x: x.at[jnp.array([1, 1, 3])].add(2.0),
    "multiply": lambda x: x.at[1, 2].multiply(3.0), "max": lambda x: x.at[jnp.array([2, 0])].max(
        0.5, unique_indices=True),
    "subtract": lambda x: x.at[jnp.array([1, 1, 3])].subtract(2.0),
    "set_out": lambda x: x.at[jnp.array([1, 17])].set(0.0, mode="drop"),
    "dynamic": lambda x: lax.dynamic_slice(x, (jnp.int32(3), 1, 0), (2, 3, 5)),
    "update": lambda x: lax.dynamic_update_slice(x, x[:1, :2], (3, 1, 0)),
    "one_hot": lambda x: jax.nn.one_hot(jnp.argmax(x, -1), 7), "top_k": lambda x: lax.top_k(x, 3),
    "top_k_ties": lambda x: lax.top_k(jnp.round(x), 4),
    "top_k_long": lambda x: lax.top_k(jnp.round(4 * x).reshape(-1), 25),
    "approx_max_k": lambda x: lax.approx_max_k(x, 3), "approx_min_k":
    lambda x: lax.approx_min_k(x, 2, reduction_dimension=0),
    "searchsorted": lambda x: jnp.searchsorted(jnp.sort(x[0, 0]), x[1, 0]),
    "segment_sum": lambda x: jax.ops.segment_sum(x, jnp.array([0, 2, 2, 1]), 3)}, X)
for name in "sum prod max min mean var any all argmax argmin cumsum cumprod median".split():
    for axis in (0, 1, 2):
        CASES[f"{name}_{axis}"] = functools.partial(
            same, functools.partial(getattr(jnp, name), axis=axis), X, tolerance=1e-5)
register_all("reduce", {
    "logsumexp": lambda x: jax.nn.logsumexp(x, -1), "softmax": jax.nn.softmax,
    "log_softmax": jax.nn.log_softmax, "norm": lambda x: jnp.linalg.norm(x, axis=1),
    "window": lambda x: lax.reduce_window(x, 2.0, lax.add, (1, 2, 2), (1, 2, 1), "SAME"),
    "scalar_window": lambda x: lax.reduce_window(x[0, 0, 0], 0.0, lax.add, (), (), "VALID"),
    "cummax": lambda x: lax.cummax(x, 1), "sort2": lambda x: lax.sort((x.astype(jnp.int32), x))}, X)

# --- products

A, B = random(7, 12), random(12, 9, seed=1)
register_all("product", {
    "dot": jnp.dot, "grad": jax.grad(lambda a, b: jnp.sum(jnp.tanh(a @ b))),
    "bf16": lambda a, b: a.astype(jnp.bfloat16) @ b.astype(jnp.bfloat16),
    "outer": lambda a, b: jnp.outer(a[0], b[0]), "vmap": jax.vmap(lambda a, b: a @ b, (None, 1))},
    A, B, tolerance=1e-5)
IMAGE, KERNEL = random(2, 9, 8, 3), random(3, 3, 3, 4, seed=1)


def conv(x, k, **options):
    return lax.conv_general_dilated(x, k, dimension_numbers=("NHWC", "HWIO", "NHWC"), **options)


register_all("conv", {
    "valid": lambda x, k: conv(x, k, window_strides=(1, 1), padding="VALID"),
    "strided": lambda x, k: conv(x, k, window_strides=(2, 2), padding="SAME"),
    "dilated": lambda x, k: conv(x, k, window_strides=(1, 1), padding="SAME", rhs_dilation=(2, 2)),
    "grouped": lambda x, k: conv(x, k[:, :, :1, :3], window_strides=(1, 1), padding="SAME",
                                 feature_group_count=3),
    "grad": lambda x, k: jax.grad(lambda x, k: jnp.sum(jnp.square(
        conv(x, k, window_strides=(2, 1), padding="SAME"))), (0, 1))(x, k)}, IMAGE, KERNEL,
    tolerance=1e-5)


def pool(x, window=(1, 3, 2, 1), strides=(1, 2, 2, 1), padding="SAME"):
    return lax.reduce_window(x, -jnp.inf, lax.max, window, strides, padding)


register_all("pool", {
    "max": pool, "max_grad": jax.grad(lambda x: jnp.sum(jnp.square(pool(x)))),
    "max_grad_ties": jax.grad(lambda x: jnp.sum(pool(jnp.round(x)) * jnp.arange(3.0))),
    "average_grad": jax.grad(lambda x: jnp.sum(jnp.square(lax.reduce_window(
        x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"))))}, IMAGE)

# --- control


def recurrence(carry, x):
    carry = jnp.tanh(carry * 0.9 + x)
    return carry, (carry * 2, x)


STEPS = random(6, 4)
register_all("loop", {
    "scan": lambda xs: lax.scan(recurrence, xs[0], xs),
    "scan_reverse": lambda xs: lax.scan(recurrence, xs[0], xs, reverse=True),
    "scan_grad": jax.grad(lambda xs: lax.scan(recurrence, xs[0], xs)[0].sum()),
    "scan_length": lambda xs: lax.scan(lambda c, _: (c * 1.1, c), xs, None, length=5),
    "scan_nested": lambda xs: lax.scan(
        lambda c, x: lax.scan(recurrence, c, jnp.outer(x, x)), xs[0], xs),
    "scan_constants": lambda xs: lax.scan(lambda c, x: (c + xs.sum(), x @ xs.T), xs[0], xs),
    "scan_indices": lambda xs: lax.scan(lambda c, i: (c + xs[i], xs[5 - i] * i), xs[0],
                                        jnp.arange(6)),
    "fori": lambda xs: lax.fori_loop(2, 9, lambda i, x: x + i, xs),
    "fori_slices": lambda xs: lax.fori_loop(0, 6, lambda i, x: x.at[i].multiply(2.0 + i), xs),
    "fori_other": lambda xs: lax.fori_loop(0, 6, lambda i, x: x.at[5 - i].set(x[i]), xs),
    "fori_part": lambda xs: lax.fori_loop(0, 4, lambda i, x: x.at[i].set(xs[i] + 1), xs),
    "while": lambda xs: lax.while_loop(lambda x: jnp.sum(x) < 100, lambda x: x * 1.5 + 1, xs),
    "map": lambda xs: lax.map(jnp.sin, xs), "associative": lambda xs: lax.associative_scan(
        jnp.add, xs), "cond": lambda xs: lax.cond(xs[0, 0] > 0, jnp.sin, jnp.cos, xs),
    "switch": lambda xs: lax.switch(jnp.int32(7), [jnp.sin, jnp.cos, jnp.tanh], xs),
    "remat": jax.grad(lambda xs: jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)))(xs).sum()),
    "vmap_while": jax.vmap(lambda x: lax.while_loop(
        lambda c: c < 10, lambda c: c * 2 + 1, jnp.abs(x[0])))}, STEPS, tolerance=1e-5)

# --- random numbers: JAX's bits

KEY = np.array([3, 5], np.uint32)
register_all("random", {
    "bits": lambda k: jax.random.bits(k, (7,)), "split": lambda k: jax.random.split(k, 3),
    "fold": lambda k: jax.random.fold_in(k, 9), "uniform": lambda k: jax.random.uniform(k, (9,)),
    "normal": lambda k: jax.random.normal(k, (9,)), "randint": lambda k:
    jax.random.randint(k, (9,), 0, 100), "bernoulli": lambda k: jax.random.bernoulli(k, 0.3, (9,)),
    "permutation": lambda k: jax.random.permutation(k, 9), "categorical": lambda k:
    jax.random.categorical(k, jnp.zeros((4, 5))), "truncated": lambda k:
    jax.random.truncated_normal(k, -2, 2, (9,)), "gumbel": lambda k: jax.random.gumbel(k, (9,)),
    "exponential": lambda k: jax.random.exponential(k, (9,))}, KEY, tolerance=1e-5)

STATE = np.array([17, 1 << 31, 0xFFFFFFFE, 0xFFFFFFFF], np.uint32)
for algorithm in lax.RandomAlgorithm:
    for shape in ((8,), (3, 6), (5,), (2, 2, 3), (3, 5), (5, 3), (3, 3), (3, 4, 2), ()):
        CASES[f"bits_of_{algorithm.name}_{'x'.join(map(str, shape))}"] = functools.partial(
            same, functools.partial(lax.rng_bit_generator, shape=shape, algorithm=algorithm), STATE)
CASES["rbg"] = lambda: same(lambda: jax.random.key_data(jax.random.split(
    jax.random.key(3, impl="rbg"), 2)))
CASES["rbg_normal"] = lambda: same(lambda: jax.random.normal(jax.random.key(3, impl="rbg"), (7,)))
WORDS = np.concatenate([np.array([0, 1, 0xFFFF, 0x10000, 0xFFFFFFFF], np.uint32),
                        np.frombuffer(np.random.RandomState(5).bytes(200), np.uint32)])
register_all("words", {
    "product_high": lambda x: jax.vmap(lambda y: lax.mulhi(x, y * jnp.ones_like(x)))(x),
    "product_high_outer": lambda x: lax.mulhi(x[::-1], x)},
    WORDS)

# --- devices


def transposed_in_python(x):
    """A matrix transposed by a callback."""
    result = jax.ShapeDtypeStruct(x.T.shape, x.dtype)
    return jax.jit(lambda x: jax.pure_callback(lambda x: np.asarray(x).T, result, x))(x)


def mesh_of(*shape):
    count = int(np.prod(shape))
    return Mesh(DEVICES[:count].reshape(shape), ("x", "y", "z")[:len(shape)])


def step(w, m, x):
    def loss(w):
        return jnp.mean(jnp.square(jnp.tanh(x @ w[0]) @ w[1] - 1))
    value, grads = jax.value_and_grad(loss)(w)
    m = jax.tree.map(lambda m, g: 0.9 * m + g, m, grads)
    return jax.tree.map(lambda w, m: w - 0.1 * m, w, m), m, value


def trained(mesh, weights, batch):
    """The bits of a small network's weights after some steps, with this layout."""
    def put(array, spec):
        return jax.device_put(array, NamedSharding(mesh, spec))
    w = [put(random(12, 16), weights[0]), put(random(16, 8, seed=1), weights[1])]
    m = [jnp.zeros_like(array) for array in w]
    x = put(random(24, 12, seed=2), batch)
    run = jax.jit(step, donate_argnums=(0, 1), out_shardings=(
        [a.sharding for a in w], [a.sharding for a in m], None))
    losses = []
    for _ in range(4):
        w, m, loss = run(w, m, x)
        losses.append(float(loss))
    return [np.asarray(array).tobytes() for array in w], losses


LAYOUTS = {
    "data": ((8,), (P(), P()), P("x")), "data2": ((2,), (P(), P()), P("x")),
    "data4": ((4,), (P(), P()), P("x")), "fsdp": ((8,), (P(None, "x"), P("x")), P("x")),
    "4x2": ((4, 2), (P(None, "y"), P("y")), P("x")),
    "2x4": ((2, 4), (P(None, "y"), P("y")), P("x")),
    "rows": ((2, 4), (P("y"), P("y")), P("x", "y")),
    "2x2x2": ((2, 2, 2), (P("y", "z"), P("z")), P("x"))}


def same_bits(name):
    shape, weights, batch = LAYOUTS[name]
    assert trained(mesh_of(*shape), weights, batch) == trained(mesh_of(1), (P(), P()), P())


for name in LAYOUTS:
    CASES[f"bits_{name}"] = functools.partial(same_bits, name)


def mapped(function, in_specs, out_specs, wanted):
    run = jax.shard_map(function, mesh=mesh_of(4, 2), in_specs=in_specs, out_specs=out_specs,
                        check_vma=False)
    x = random(16, 8)
    np.testing.assert_allclose(np.asarray(jax.jit(run)(x)), wanted(x), rtol=1e-5, atol=1e-5)


def tiles(x):
    return x.reshape(4, 4, 2, 4).transpose(0, 2, 1, 3)  # [x, y, rows, columns]


MAPPED = {
    "psum": (lambda a: lax.psum(a, "x"), P("x", "y"), P(None, "y"),
             lambda x: x.reshape(4, 4, 8).sum(0)),
    "pmean": (lambda a: lax.pmean(a, ("x", "y")), P("x", "y"), P(),
              lambda x: tiles(x).mean((0, 1))),
    "pmax": (lambda a: lax.pmax(a, "y"), P("x", "y"), P("x"),
             lambda x: tiles(x).max(1).reshape(16, 4)),
    "gather": (lambda a: lax.all_gather(a, ("y", "x")), P("x", "y"), P(),
               lambda x: tiles(x).swapaxes(0, 1).reshape(8, 4, 4)),
    "gather_tiled": (lambda a: lax.all_gather(a, "y", axis=1, tiled=True), P("x", "y"), P("x"),
                     lambda x: x),
    "index": (lambda a: a * 0 + lax.axis_index("x") * 10 + lax.axis_index("y"), P("x", "y"),
              P("x", "y"), lambda x: np.repeat(np.repeat(
                  np.arange(4)[:, None] * 10 + np.arange(2), 4, 0), 4, 1)),
    "permute": (lambda a: lax.ppermute(a, "x", [(0, 1), (1, 3)]), P("x"), P("x"), lambda x:
                np.concatenate([0 * x[:4], x[:4], 0 * x[:4], x[4:8]])),
    "ring": (lambda a: lax.ppermute(a, "x", [(i, (i + 1) % 4) for i in range(4)]), P("x"), P("x"),
             lambda x: np.roll(x, 4, 0)),
    "permute_both": (lambda a: lax.ppermute(a, ("x", "y"), [(0, 7), (7, 0)]), P(("x", "y")),
                     P(("x", "y")), lambda x: np.concatenate([x[14:], 0 * x[2:14], x[:2]])),
    "scatter": (lambda a: lax.psum_scatter(a, "x", tiled=True), P("x"), P("x"),
                lambda x: x.reshape(4, 4, 8).sum(0)),
    "all_to_all": (lambda a: lax.all_to_all(a, "y", 1, 0, tiled=True), P(None, None), P("y"),
                   lambda x: np.concatenate([x[:, :4], x[:, :4], x[:, 4:], x[:, 4:]])),
    "scan": (lambda a: lax.scan(lambda c, x: (c + lax.psum(x, "y"), x), jnp.zeros(4), a)[0][None],
             P("x", "y"), P("x"), lambda x: x.reshape(4, 4, 2, 4).sum((1, 2)))}
for name, arguments in MAPPED.items():
    CASES[f"shard_map_{name}"] = functools.partial(mapped, *arguments)


@case("shard_map_some_axes")
def _():
    run = jax.jit(jax.shard_map(
        lambda a: (a * lax.axis_index("x"), lax.psum(a, "x")), mesh=mesh_of(4, 2), in_specs=P("x"),
        out_specs=(P("x"), P()), axis_names={"x"}))
    x = random(16, 8)
    scaled, total = run(x)
    index = np.repeat(np.arange(4), 4)[:, None].astype(np.float32)
    np.testing.assert_array_equal(scaled, x * index)
    np.testing.assert_allclose(total, x.reshape(4, 4, 8).sum(0), rtol=1e-5, atol=1e-5)


def terms_of(array):
    return [np.asarray(shard.data) for shard in array.addressable_shards]


def as_terms(axis):
    """Marks what each device holds as its term of a sum. Without checks JAX does not require it."""
    return lambda x: lax.pcast(x, axis, to="unreduced")


def unreduced(split, terms, check):
    """Devices hold terms of a sum: a function of tiles makes the terms, and others read them."""
    mesh = jax.make_mesh((2,), ("x",), (jax.sharding.AxisType.Explicit,), devices=DEVICES[:2])
    apart = P(unreduced={"x"})
    with jax.set_mesh(mesh):
        x = jax.device_put(random(6), NamedSharding(mesh, P(*split)))
        identity = functools.partial(jax.shard_map, lambda x: x)
        into_terms = jax.shard_map(as_terms("x") if check else lambda x: x, check_vma=check,
                                   in_specs=P(*split), out_specs=apart)
        y = jax.jit(into_terms)(x)
        assert y.sharding.spec.unreduced == {"x"}
        for found, wanted in zip(terms_of(y), terms, strict=True):
            np.testing.assert_array_equal(found, wanted)
        total = jax.jit(lambda y: jax.sharding.reshard(y, P()))(y)
        np.testing.assert_array_equal(total, terms[0] + terms[1])
        summed = jax.shard_map(lambda y: lax.psum(y, "x"), in_specs=apart, out_specs=P())
        np.testing.assert_array_equal(jax.jit(summed)(y), terms[0] + terms[1])
        back = jax.jit(identity(in_specs=apart, out_specs=P("x"), check_vma=False))(y)
        np.testing.assert_array_equal(back, np.concatenate(terms))
        # Makes and reads them in one program, through a constraint.
        both = jax.jit(lambda x: jax.sharding.reshard(
            into_terms(x), apart))(x)
        for found, wanted in zip(terms_of(both), terms, strict=True):
            np.testing.assert_array_equal(found, wanted)


CASES["unreduced_replicated"] = functools.partial(
    unreduced, (), [random(6), random(6)], False)
CASES["unreduced_split"] = functools.partial(
    unreduced, ("x",), [random(6)[:3], random(6)[3:]], True)


@case("unreduced_products")
def _():
    mesh = jax.make_mesh((2, 2), ("x", "y"), (jax.sharding.AxisType.Explicit,) * 2,
                         devices=DEVICES[:4])
    a, b = random(4, 6), random(6, 5, seed=1)
    with jax.set_mesh(mesh):
        product = jax.jit(jax.shard_map(
            lambda a, b: as_terms("y")(a @ b), in_specs=(P("x", "y"), P("y")),
            out_specs=P("x", unreduced={"y"})))
        terms = terms_of(product(jax.device_put(a, P("x", "y")), jax.device_put(b, P("y"))))
    for i, j in itertools.product(range(2), range(2)):
        wanted = a[2 * i:2 * i + 2, 3 * j:3 * j + 3] @ b[3 * j:3 * j + 3]
        np.testing.assert_allclose(terms[2 * i + j], wanted, rtol=1e-5, atol=1e-5)


@case("inferred_shardings")
def _():
    mesh = mesh_of(4, 2)
    x = jax.device_put(random(16, 8), NamedSharding(mesh, P("x", "y")))
    by_rows, uneven, transposed = jax.jit(lambda x: (x @ x.T, x[:7, :5], x.T))(x)
    assert by_rows.sharding.spec[0] == "x" and transposed.sharding.spec == P("y", "x")
    np.testing.assert_array_equal(uneven, np.asarray(x)[:7, :5])
    for array in (by_rows, uneven, transposed):
        for shard in array.addressable_shards:
            np.testing.assert_array_equal(shard.data, np.asarray(array)[shard.index])


@case("explicit_shardings")
def _():
    """The bodies of reductions and windows contain sharding constraints."""
    mesh = jax.make_mesh((4,), ("x",), (jax.sharding.AxisType.Explicit,), devices=DEVICES[:4])
    x = random(8, 6, 4)
    functions = [lambda x: jnp.argmax(x, 1), lambda x: jnp.argmin(x, 0), lambda x: jnp.sort(x, 1),
                 lambda x: jax.grad(lambda x: jnp.sum(pool(x, (1, 2, 2), (1, 2, 1)) ** 2))(x)]
    with jax.default_device(CPU):
        wanted = [np.asarray(jax.jit(each)(x)) for each in functions]
    with jax.set_mesh(mesh):
        placed = jax.device_put(x, P("x"))
        for function, value in zip(functions, wanted, strict=True):
            np.testing.assert_allclose(jax.jit(function)(placed), value, rtol=1e-6)


@case("two_meshes")
def _():
    x = jax.device_put(random(16, 8), NamedSharding(mesh_of(8), P("x")))
    other = NamedSharding(mesh_of(2, 4), P("y", "x"))
    y = jax.jit(lambda x: lax.with_sharding_constraint(x + 1, other) * 2)(x)
    np.testing.assert_array_equal(y, (random(16, 8) + 1) * 2)


@case("order_of_devices")
def _():
    mesh = Mesh(DEVICES[[3, 1, 7, 0, 2, 6, 5, 4]].reshape(2, 4), ("x", "y"))
    x = jax.device_put(random(8, 8), NamedSharding(mesh, P("y", "x")))
    y = jax.jit(lambda x: x @ x, out_shardings=NamedSharding(mesh, P("x")))(x)
    np.testing.assert_allclose(y, random(8, 8) @ random(8, 8), rtol=1e-5, atol=1e-5)
    assert [shard.device.id for shard in y.addressable_shards if shard.index[0].start == 0] == \
        [3, 1, 7, 0] or {s.device.id for s in y.addressable_shards if not s.index[0].start} == \
        {3, 1, 7, 0}


# --- the interface


@case("donation")
def _():
    x = jnp.arange(8.0)
    y = x + 0
    z = jax.jit(lambda x: x * 2, donate_argnums=0)(x)
    assert x.is_deleted() and not y.is_deleted()
    np.testing.assert_array_equal(z, np.arange(8.0) * 2)
    np.testing.assert_array_equal(y, np.arange(8.0))


@case("donation_of_shared")
def _():
    mesh = mesh_of(8)
    x = jax.device_put(random(8), NamedSharding(mesh, P()))
    same_array = jax.jit(lambda x: x)(x)
    jax.block_until_ready(jax.jit(lambda x: x + 1, donate_argnums=0)(x))
    np.testing.assert_array_equal(same_array, random(8))


@case("error_names_the_line")
def _():
    try:
        jax.jit(jax.ffi.ffi_call("unknown_function", jax.ShapeDtypeStruct((4,), jnp.float32)))(
            jnp.ones(4))
    except jax.errors.JaxRuntimeError as error:
        text = str(error)
        assert "cases.py" in text and "found:" in text and "cure:" in text, text
    else:
        raise AssertionError("no error")
    np.testing.assert_array_equal(jnp.ones(2) + 1, [2, 2])


@case("readable_program")
def _():
    mesh = mesh_of(8)
    x = jax.device_put(random(16, 8), NamedSharding(mesh, P("x")))
    compiled = jax.jit(lambda x: lax.with_sharding_constraint(
        x.sum(0), NamedSharding(mesh, P()))).lower(x).compile()
    assert "all-reduce" in compiled.as_text()
    assert compiled.memory_analysis().argument_size_in_bytes == 2 * 8 * 4
    assert compiled.cost_analysis()["bytes accessed"] > 0


@case("layouts")
def _():
    x = jax.device_put(random(8, 3, 4), NamedSharding(Mesh(DEVICES, "d"), P("d")))
    compiled = jax.jit(lambda x, y: (x.T, x.sum() + y)).lower(x, 1.0).compile()
    (of_x, of_y), _ = compiled.input_formats
    formats = [x.format, of_x, of_y, *compiled.output_formats]
    orders = [each.layout.major_to_minor for each in formats]
    assert orders == [(0, 1, 2), (0, 1, 2), (), (0, 1, 2), ()], orders


@case("memory_statistics")
def _():
    statistics = DEVICES[0].memory_stats()
    assert 0 < statistics["bytes_in_use"] <= statistics["peak_bytes_in_use"]


@case("types_that_are_only_stored")
def _():
    for dtype in (np.int8, np.uint8, np.int16, np.float16):
        x = random(5).astype(dtype)
        np.testing.assert_array_equal(jax.device_put(x, DEVICES[1]), x)


@case("strides")
def _():
    x = random(6, 8)
    np.testing.assert_array_equal(jax.device_put(x.T[::2], DEVICES[0]), x.T[::2])


@case("many_calls_without_waiting")
def _():
    f = jax.jit(lambda x: jnp.tanh(x @ x) * 0.5)
    x = jnp.eye(64)
    for _ in range(50):
        x = f(x)
    assert np.isfinite(np.asarray(x)).all()


@case("no_values_and_scalars")
def _():
    same(lambda x: (x, jnp.sum(x), jnp.zeros((0, 3)), x[:0]), random(4))
    same(lambda: jnp.arange(5), tolerance=0)
    same(lambda x: (x, x, 3), random(2))


def main(cases):
    failed = 0
    for name, function in cases.items():
        try:
            function()
        except Exception:  # one case must not hide the others
            failed += 1
            print(f"--- {name}\n{traceback.format_exc(limit=-3)[-1500:]}")
    print(f"{len(cases) - failed} of {len(cases)} cases passed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main(CASES)
