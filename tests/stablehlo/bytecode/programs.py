"""Small JAX programs: name -> (function, arguments). They have most operations that JAX emits."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

PROGRAMS = {}


def floats(*shape, seed=0, dtype=np.float32):
    return np.random.RandomState(seed).randn(*shape).astype(dtype)


def ints(*shape, seed=0, low=-9, high=9, dtype=np.int32):
    return np.random.RandomState(seed).randint(low, high, shape).astype(dtype)


def add(name, function, *arguments):
    assert name not in PROGRAMS, name
    PROGRAMS[name] = (function, arguments)


def elementwise():
    x, y = floats(3, 4), floats(3, 4, seed=1)
    for name in (
        "abs ceil cos exp exp2 expm1 floor is_finite log1p logistic neg round sign sin sqrt "
        "tan tanh cbrt erf erfc erf_inv asin acos atan sinh cosh asinh acosh atanh square"
    ).split():
        if hasattr(lax, name):
            argument = {
                "acosh": np.abs(x) + 1,
                "erf_inv": np.tanh(x),
                "log1p": np.abs(x),
                "sqrt": np.abs(x),
                "asin": np.tanh(x),
                "acos": np.tanh(x),
                "atanh": np.tanh(x),
            }.get(name, x)
            add(name, getattr(lax, name), argument)
    add("log", lax.log, np.abs(x) + 0.1)
    add("rsqrt", lax.rsqrt, np.abs(x) + 0.1)
    for name in "add sub mul div max min atan2 rem nextafter".split():
        add(name, getattr(lax, name), x, y)
    add("pow", lax.pow, np.abs(x), y)
    add("integer_pow", lambda a: a**3, x)
    i, j = ints(4, 5), ints(4, 5, seed=1, low=1)
    for name in "add sub mul max min div rem bitwise_and bitwise_or bitwise_xor".split():
        add("int_" + name, getattr(lax, name), i, j)
    u, v = i.astype(np.uint32), (j % 8).astype(np.uint32)
    for name in "shift_left shift_right_logical shift_right_arithmetic div rem max".split():
        add("uint_" + name, getattr(lax, name), u, v)
    add("bits", lambda a: (lax.bitwise_not(a), lax.population_count(a), lax.clz(a)), u)
    add("bools", lambda a, b: (a & b, a | b, a ^ b, ~a), i > 0, j > 3)
    for name in "eq ne ge gt le lt".split():
        add("compare_" + name, getattr(lax, name), i, i.T.reshape(4, 5))
    add("compare_bits", lambda a, b: a < b, u, v)
    add("select", lambda c, a, b: jnp.where(c, a, b), x > 0, x, y)
    add("clamp", lambda a: lax.clamp(-0.5, a, 0.5), x)
    add("round_away", lambda a: lax.round(a * 3, lax.RoundingMethod.AWAY_FROM_ZERO), x)
    add("reduce_precision", lambda a: lax.reduce_precision(a, 5, 10), x)
    add(
        "complex",
        lambda a, b: jnp.abs(lax.complex(a, b)) + lax.real(lax.conj(lax.complex(a, b))),
        x,
        y,
    )


def types():
    x = floats(2, 3)
    for dtype in "bool_ int8 uint8 int16 uint16 int32 uint32 float16 bfloat16".split():
        add(
            "convert_" + dtype,
            lambda a, d=dtype: a.astype(getattr(jnp, d)).astype(jnp.float32),
            x * 4,
        )
    for dtype in "float8_e5m2 float8_e4m3fn float8_e4m3b11fnuz float8_e4m3 float8_e3m4".split():
        add(
            "constant_" + dtype,
            lambda a, d=dtype: a + jnp.array([1.5, 0.3], getattr(jnp, d)).astype(jnp.float32),
            x[0, :2],
        )
    add("constant_int4", lambda a: a + jnp.array([1, -3], jnp.int4).astype(jnp.int32), ints(2))
    add(
        "bitcast",
        lambda a: (lax.bitcast_convert_type(a, jnp.int32), lax.bitcast_convert_type(a, jnp.uint32)),
        x,
    )
    add(
        "constants",
        lambda a: a + np.linspace(0, 1, 6, dtype=np.float32).reshape(2, 3) + np.float32(1e-30),
        x,
    )
    add(
        "long_constants",
        lambda a: a + np.linspace(0, 1, 200, dtype=np.float32).sum() * np.arange(150)[:3],
        x,
    )
    add(
        "special_constants",
        lambda a: a * np.array([np.inf, -np.inf, np.nan], np.float32) + np.float32(1.001953125),
        x,
    )
    add("bool_constants", lambda a: a * np.array([True, False, True]) * np.ones(11, bool)[:3], x)
    add("empty_constant", lambda a: a.sum() + np.zeros((0, 3), np.float32).sum(), x)
    add(
        "bf16",
        lambda a, b: jnp.dot(a.astype(jnp.bfloat16), b.astype(jnp.bfloat16)),
        x,
        floats(3, 2),
    )


def shapes():
    x = floats(2, 3, 4)
    add("broadcast", lambda a: jnp.broadcast_to(a[:, None], (2, 5, 3, 4)), x)
    add(
        "broadcast_in_dim",
        lambda a: lax.broadcast_in_dim(a, (4, 2, 5), (1, 2)),
        x[:, :1, 0] + np.zeros((2, 5), np.float32),
    )
    add("reshape", lambda a: a.reshape(6, 4).ravel(), x)
    add("transpose", lambda a: jnp.transpose(a, (2, 0, 1)), x)
    add("slice", lambda a: a[:, 1:, ::2], x)
    add("reverse", lambda a: a[:, ::-1], x)
    add("pad", lambda a: lax.pad(a, 1.0, ((1, 2, 0), (0, 0, 1), (0, 1, 2))), x)
    add("pad_negative", lambda a: lax.pad(a, 1.0, ((0, 0, 0), (-1, 0, 0), (0, -1, 1))), x)
    add("concatenate", lambda a: jnp.concatenate([a, a * 2, a[:, :1]], axis=1), x)
    add("iota", lambda a: a + lax.broadcasted_iota(jnp.float32, (2, 3, 4), 1) + jnp.arange(4), x)
    add("dynamic_slice", lambda a, i: lax.dynamic_slice(a, (i, 1, i), (1, 2, 3)), x, np.int32(1))
    add(
        "dynamic_update_slice",
        lambda a, i: lax.dynamic_update_slice(a, a[:1, :2] * 2, (i, i, 0)),
        x,
        np.int32(1),
    )
    add("roll", lambda a: jnp.roll(a, 2, axis=1), x)
    add("tile", lambda a: jnp.tile(a, (2, 1, 3)), x)
    add("eye", lambda a: a @ jnp.eye(4) + jnp.tril(jnp.ones((3, 4))), x)


def sums():
    x = floats(3, 4, 5)
    for name in "sum prod max min mean std var argmax argmin all any logsumexp".split():
        function = getattr(jnp, name, None) or getattr(jax.nn, name)
        add("reduce_" + name, lambda a, f=function: f(a, axis=1), x)
    add("reduce_whole", lambda a: jnp.sum(a), x)
    add("reduce_int", lambda a: (jnp.sum(a, 0), jnp.max(a), jnp.prod(a, 1)), ints(3, 4))
    add(
        "reduce_bits",
        lambda a: lax.reduce(a, np.uint32(0), lax.bitwise_or, (0,)),
        ints(3, 4).astype(np.uint32),
    )
    add(
        "reduce_two",
        lambda a, b: lax.reduce(
            (a, b), (np.float32(0), np.float32(1)), lambda p, q: (p[0] + q[0], p[1] * q[1]), (1,)
        ),
        x,
        x,
    )
    for name in "cumsum cumprod cummax cummin cumlogsumexp".split():
        add(name, lambda a, f=getattr(lax, name): f(a, axis=1), x)
    add("cumsum_reverse", lambda a: lax.cumsum(a, axis=0, reverse=True), x)
    add("sort", lambda a: jnp.sort(a, axis=1), x)
    add("argsort", lambda a: jnp.argsort(a, axis=-1), x)
    add("sort_two", lambda a, b: lax.sort((a, b), num_keys=2), ints(12), floats(12))
    add("top_k", lambda a: lax.top_k(a, 2), x)
    add("softmax", lambda a: jax.nn.softmax(a), x)


def products():
    add("dot", jnp.dot, floats(3, 4), floats(4, 5))
    add(
        "dot_batch", lambda a, b: jnp.einsum("bij,bkj->bik", a, b), floats(2, 3, 4), floats(2, 5, 4)
    )
    add(
        "dot_highest",
        lambda a, b: lax.dot(a, b, precision=lax.Precision.HIGHEST),
        floats(3, 4),
        floats(4, 5),
    )
    add("dot_int", jnp.dot, ints(3, 4), ints(4, 5))
    x, w = floats(2, 8, 8, 4), floats(3, 3, 4, 6)
    numbers = ("NHWC", "HWIO", "NHWC")
    add(
        "conv",
        lambda a, b: lax.conv_general_dilated(a, b, (1, 1), "SAME", dimension_numbers=numbers),
        x,
        w,
    )
    add(
        "conv_strided",
        lambda a, b: lax.conv_general_dilated(
            a, b, (2, 1), "VALID", rhs_dilation=(1, 2), dimension_numbers=numbers
        ),
        x,
        w,
    )
    add(
        "conv_transpose",
        lambda a, b: lax.conv_transpose(a, b, (2, 2), "SAME", dimension_numbers=numbers),
        x,
        w,
    )
    add(
        "conv_groups",
        lambda a, b: lax.conv_general_dilated(
            a, b, (1, 1), "SAME", dimension_numbers=numbers, feature_group_count=2
        ),
        x,
        w[:, :, :2],
    )
    add(
        "conv_channels_first",
        lambda a, b: lax.conv(a, b, (1, 1), "SAME"),
        floats(2, 3, 6, 6),
        floats(5, 3, 3, 3),
    )
    add(
        "conv_grad",
        lambda a, b: jax.grad(
            lambda p: lax.conv_general_dilated(
                a, p, (2, 2), "SAME", dimension_numbers=numbers
            ).sum()
        )(b),
        x,
        w,
    )
    add(
        "max_pool",
        lambda a: lax.reduce_window(a, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"),
        x,
    )
    add(
        "max_pool_grad",
        jax.grad(
            lambda a: lax.reduce_window(
                a, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"
            ).sum()
        ),
        x,
    )
    add(
        "avg_pool",
        lambda a: lax.reduce_window(a, 0.0, lax.add, (1, 3, 3, 1), (1, 2, 2, 1), "SAME"),
        x,
    )


def indexing():
    x, i = floats(5, 4), ints(3, low=0, high=5)
    add("take", lambda a, n: a[n], x, i)
    add("take_columns", lambda a, n: a[:, n], x, i % 4)
    add("take_clip", lambda a, n: jnp.take(a, n, axis=0, mode="clip"), x, i + 3)
    add("take_fill", lambda a, n: jnp.take(a, n, axis=0, mode="fill"), x, i + 3)
    add("take_along", lambda a, n: jnp.take_along_axis(a, n, axis=1), x, ints(5, 2, low=0, high=4))
    add("take_both", lambda a, n, m: a[n, m], x, i, i % 4)
    add(
        "take_windows",
        lambda a, n: jax.vmap(lambda k: lax.dynamic_slice(a, (k, 0), (2, 3)))(n),
        x,
        i,
    )
    add("set_row", lambda a, n, b: a.at[n].set(b), x, np.int32(2), x[0] * 2)
    add(
        "set_rows",
        lambda a, n, b: a.at[n].set(b),
        x,
        np.array([0, 3, 1], np.int32),
        floats(3, 4, seed=2),
    )
    add("add_rows", lambda a, n, b: a.at[n].add(b), x, i, floats(3, 4, seed=2))
    add("max_rows", lambda a, n, b: a.at[n].max(b), x, i, floats(3, 4, seed=2))
    add("mul_rows", lambda a, n, b: a.at[n].mul(b), x, i, floats(3, 4, seed=2))
    add("take_grad", jax.grad(lambda a, n: (a[n] ** 2).sum()), x, i)
    add("one_hot", lambda n: jax.nn.one_hot(n, 5), i)
    add("searchsorted", lambda a, b: jnp.searchsorted(a, b), np.sort(floats(9)), floats(4, seed=1))
    add(
        "segment_sum",
        lambda a, n: jax.ops.segment_sum(a, n, num_segments=4),
        x,
        ints(5, low=0, high=4),
    )


def control():
    x, w = floats(4, 3), floats(6, 3, 3)
    add("cond", lambda p, a: lax.cond(p, lambda b: b * 2, lambda b: b + 1, a), np.bool_(True), x)
    add(
        "switch",
        lambda n, a: lax.switch(n, [lambda b: b * 2, lambda b: b + 1, jnp.sin], a),
        np.int32(1),
        x,
    )
    add(
        "while",
        lambda a: lax.while_loop(lambda c: jnp.sum(c) < 100, lambda c: c * 2 + 1, a),
        np.abs(x),
    )
    add("fori", lambda a: lax.fori_loop(0, 5, lambda i, c: c * 1.5 + i, a), x)
    add("scan", lambda a, b: lax.scan(lambda c, m: (jnp.tanh(c @ m), c.sum()), a, b), x, w)
    add(
        "scan_grad",
        jax.grad(lambda b, a: lax.scan(lambda c, m: (jnp.tanh(c @ m), c.sum()), a, b)[0].sum()),
        w,
        x,
    )
    add(
        "scan_reverse",
        lambda a, b: lax.scan(lambda c, m: (c + m[0], c * 2), a, b, reverse=True),
        x,
        w,
    )
    add("map", lambda b: lax.map(lambda m: m @ m, b), w)
    add(
        "nested",
        lambda a, b: lax.fori_loop(
            0, 3, lambda i, c: lax.scan(lambda d, m: (jnp.tanh(d @ m) + i, None), c, b)[0], a
        ),
        x,
        w,
    )
    add("calls", lambda a: jax.jit(lambda b: jax.jit(jnp.sin)(b) + jax.jit(jnp.sin)(b * 2))(a), x)
    add("remat", jax.grad(lambda a: jax.checkpoint(lambda b: jnp.sin(jnp.sin(b)))(a).sum()), x)
    add("barrier", lambda a: lax.optimization_barrier((a, a + 1)), x)
    add(
        "custom_vjp",
        jax.grad(lambda a: jax.nn.relu(a).sum() + jax.nn.gelu(a).sum() + jax.nn.silu(a).sum()),
        x,
    )
    add("associative_scan", lambda a: lax.associative_scan(jnp.add, a), x)


def random():
    key = np.array([0, 42], np.uint32)
    wrapped = jax.random.wrap_key_data
    add("random_bits", lambda k: jax.random.bits(wrapped(k), (5,)), key)
    add("random_split", lambda k: jax.random.key_data(jax.random.split(wrapped(k), 3)), key)
    add("random_uniform", lambda k: jax.random.uniform(wrapped(k), (3, 4)), key)
    add("random_normal", lambda k: jax.random.normal(wrapped(k), (3, 4)), key)
    add("random_integers", lambda k: jax.random.randint(wrapped(k), (6,), 0, 10), key)
    add("random_choice", lambda k: jax.random.permutation(wrapped(k), 6), key)
    add("random_categorical", lambda k, a: jax.random.categorical(wrapped(k), a), key, floats(3, 4))
    add("random_bernoulli", lambda k: jax.random.bernoulli(wrapped(k), 0.3, (7,)), key)
    add("random_generator", lambda k: lax.rng_bit_generator(jnp.concatenate([k, k]), (3,)), key)


def linear_algebra():
    x = floats(4, 4) + 4 * np.eye(4, dtype=np.float32)
    add("cholesky", lambda a: jnp.linalg.cholesky(a @ a.T), x)
    add(
        "solve_triangular",
        lambda a, b: jax.scipy.linalg.solve_triangular(a, b, lower=True),
        x,
        floats(4, 2),
    )
    add("qr", lambda a: jnp.linalg.qr(a), x)
    add("lu", lambda a: jax.scipy.linalg.lu_factor(a), x)
    add("inv", lambda a: jnp.linalg.inv(a), x)
    add("svd", lambda a: jnp.linalg.svd(a), x)
    add("fft", lambda a: jnp.abs(jnp.fft.fft(a)), x)


def training():
    def layer(p, x):
        h = jax.nn.relu(x @ p["w1"] + p["b1"])
        return jax.nn.log_softmax(h @ p["w2"])

    def step(p, x, y):
        loss, grads = jax.value_and_grad(
            lambda q: -jnp.take_along_axis(layer(q, x), y[:, None], 1).mean()
        )(p)
        return jax.tree.map(lambda a, g: a - 0.1 * g, p, grads), loss

    parameters = {"w1": floats(6, 8), "b1": floats(8), "w2": floats(8, 3)}
    add("mlp_step", step, parameters, floats(4, 6), ints(4, low=0, high=3))

    def attention(q, k, v):
        mask = jnp.tril(jnp.ones((5, 5), bool))
        return jax.nn.dot_product_attention(q, k, v, mask=mask[None, None])

    q = floats(2, 5, 2, 4)
    add("attention", attention, q, q + 1, q * 2)
    add(
        "attention_grad",
        jax.grad(lambda q, k, v: (attention(q, k, v) ** 2).sum(), (0, 1, 2)),
        q,
        q + 1,
        q * 2,
    )
    add(
        "layer_norm",
        lambda x, s: (x - x.mean(-1, keepdims=True))
        * lax.rsqrt(x.var(-1, keepdims=True) + 1e-6)
        * s,
        floats(3, 8),
        floats(8),
    )


def sharded():
    """Needs eight devices."""
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("data", "model"))
    spec = lambda *names: NamedSharding(mesh, P(*names))
    x, w = floats(8, 6), floats(6, 4)

    def constrained(a, b):
        h = lax.with_sharding_constraint(a @ b, spec("data", "model"))
        return jax.nn.relu(h).sum(1)

    inputs = dict(in_shardings=(spec("data", None), spec(None, "model")))
    add("sharded", jax.jit(constrained, **inputs), x, w)
    add(
        "sharded_out",
        jax.jit(
            lambda a, b: a + constrained(a, b)[:, None],
            out_shardings=spec("data", None),
            donate_argnums=0,
            **inputs,
        ),
        x,
        w,
    )

    def body(a, b):
        total = lax.psum(a @ b, "model")
        index = lax.axis_index("data")
        gathered = lax.all_gather(a, "data", tiled=True).sum() + lax.pmax(a, "model").sum()
        moved = lax.ppermute(total, "data", [(0, 1), (1, 2), (2, 3), (3, 0)])
        return moved + index + gathered

    mapped = jax.shard_map(
        body,
        mesh=mesh,
        in_specs=(P("data", "model"), P("model", None)),
        out_specs=P("data", None),
        check_vma=False,
    )
    add("shard_map", jax.jit(mapped), x, w)
    exchange = lambda a: lax.all_to_all(
        lax.psum_scatter(a, "data", tiled=True), "data", 1, 0, tiled=True
    )
    add(
        "shard_map_exchange",
        jax.jit(
            jax.shard_map(
                exchange,
                mesh=mesh,
                in_specs=P(None, None),
                out_specs=P("data", None),
                check_vma=False,
            )
        ),
        floats(8, 8),
    )
    other = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("a", "b"))

    def over_rows(t):
        whole = lax.all_gather(t, ("model", "data"), tiled=True)
        return lax.psum(t, "model") + lax.psum_scatter(whole, ("data", "model"), tiled=True)

    def over_columns(t):
        return lax.pmax(t, "b") + lax.all_to_all(t, "a", 0, 0, tiled=True)

    def two_meshes(a):
        spec = P("data", "model")
        b = jax.shard_map(over_rows, mesh=mesh, in_specs=spec, out_specs=spec)(a)
        spec = P("b", "a")
        return jax.shard_map(over_columns, mesh=other, in_specs=spec, out_specs=spec)(b)

    add("two_meshes", jax.jit(two_meshes), floats(8, 8))


def bodies():
    """Reductions, windows and scatters whose bodies are more than one operation."""
    log_add = lambda a, b: lax.max(a, b) + lax.log1p(lax.exp(-lax.abs(a - b)))
    affine = lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1])
    lowest, one, zero = (np.float32(each) for each in (-np.inf, 1, 0))
    window = ((2, 3), (1, 2), ((1, 0), (0, 1)), (1, 2), (2, 1))
    rows = np.int32([1, 1, 3, 0, 3])
    add("reduce_body", lambda x: lax.reduce(x, lowest, log_add, (0,)), floats(5, 4))
    add("reduce_pairs", lambda x: lax.reduce((x, -x), (one, zero), affine, (1,)), floats(3, 5))
    add("window_body", lambda x: lax.reduce_window(x, lowest, log_add, *window), floats(5, 6))
    add("scatter_max", lambda x, u: x.at[rows].max(u), floats(4, 3), floats(5, 3))


def complex_numbers():
    x, y = floats(3, 4), floats(3, 4, seed=1)

    def functions(a, b):
        z = lax.complex(a, b)
        values = [z * z.conj() + (1 - 2j), z / (z + 3), jnp.exp(z), jnp.sqrt(z), z @ z.T]
        return [part(value) for value in values for part in (jnp.real, jnp.imag)] + [jnp.abs(z)]

    add("complex_functions", functions, x, y)
    decay = lambda s, z: (s * 0.5 + z, s)
    scanned = lambda a, b: lax.scan(decay, lax.complex(a[0], b[0]), lax.complex(a, b))[1]
    add("complex_scan", lambda a, b: jnp.abs(scanned(a, b)), x, y)
    add("complex_arguments", lambda z, w: (z * w - z, jnp.fft.ifft(w), jnp.abs(w.sum(0))),
        (x + 1j * y), (y - 2j * x))
    rows = floats(2, 15), floats(2, 15, seed=1)
    add("fft_rows", lambda a, b: jnp.abs(jnp.fft.fft(lax.complex(a, b))), *rows)
    add("rfft_rows", lambda a: jnp.fft.irfft(jnp.fft.rfft(a) * (1 + 0.5j), n=22), floats(3, 22))


def floats_of_8_bits():
    x, y = floats(4, 6).astype(jnp.float8_e4m3fn), floats(6, 5, seed=1).astype(jnp.float8_e5m2)
    every = np.arange(256, dtype=np.uint8)

    def compute(x, y, every):
        dims = (((1,), (0,)), ((), ()))
        product = lax.dot_general(x, y, dims, preferred_element_type=jnp.float32)
        bits = lax.bitcast_convert_type(every, jnp.float8_e4m3fnuz)
        loop = lax.fori_loop(0, 2, lambda i, s: jnp.maximum(s, x[i]), x[3])
        return (product, x + x[:1] * 2, jnp.where(x > 0.5, x, -x).T, jnp.sort(x, axis=1), y.max(0),
                x.at[1].set(x[2]), x.astype(y.dtype), product.astype(jnp.float8_e4m3fn), loop,
                bits.astype(jnp.float32))

    add("float8", compute, x, y, every)


def integers_of_4_bits():
    def compute(x, bits):
        small = x.astype(jnp.int4)
        total = lax.reduce(small, np.array(0, jnp.int4), lax.add, (1,))
        loop = lax.fori_loop(0, 3, lambda i, s: s * 3 + small[i], small[3])
        parts = lax.bitcast_convert_type(bits, jnp.uint4)
        constant = small[:, :2] + jnp.array([7, -3], jnp.int4)
        results = (small * small, total, loop, jnp.sort(small, axis=0), constant, parts,
                   parts + parts, small.astype(jnp.uint4))
        back = lax.bitcast_convert_type(parts, jnp.uint8)
        return (back, *(y.astype(jnp.int32) for y in results))

    add("int4", compute, ints(4, 6), np.arange(0, 256, 5, dtype=np.uint8))


def floats_of_4_bits():
    def compute(x, bits):
        small = x.astype(jnp.float4_e2m1fn)
        powers = (abs(x) * 8).astype(jnp.float8_e8m0fnu)
        parts = lax.bitcast_convert_type(bits, jnp.float4_e2m1fn)
        loop = lax.fori_loop(0, 2, lambda i, s: jnp.maximum(s, small[i]), small[3])
        constant = small[:, :2] * jnp.array([1.5, -0.5], jnp.float4_e2m1fn)
        results = (small + small[:1], jnp.sort(small, axis=1), loop, constant, parts, -parts,
                   powers * powers[1], powers.max(0), powers[:, :2] * jnp.array(
                       [0.25, 4], jnp.float8_e8m0fnu))
        back = lax.bitcast_convert_type(parts, jnp.uint8)
        return (back, *(y.astype(jnp.float32) for y in results))

    add("float4", compute, floats(4, 6) * 4, np.arange(0, 256, 5, dtype=np.uint8))
    for dtype in jnp.float8_e8m0fnu, jnp.float4_e2m1fn:
        add("constant_" + np.dtype(dtype).name,
            lambda a, d=dtype: a + jnp.array([1.5, 0.3], d).astype(jnp.float32), floats(2))


def host_calls():
    """Calls of the program that runs them, as the package for JAX writes them, and tokens."""

    def call(number, x, is_effect):
        return jax.ffi.ffi_call(
            "tessera.call_host",
            jax.ShapeDtypeStruct((2,), np.float32),
            has_side_effect=is_effect,
            custom_call_api_version=2,
            legacy_backend_config=str(number),
        )(x)

    def body(a):
        chosen = lax.cond(a[0] > 1, lambda v: call(1, v, True), lambda v: v, a)
        return chosen + call(2, a, False)

    mesh = Mesh(np.array(jax.devices()[:2]), ("x",))
    tiles = jax.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False)
    add("host_calls", jax.jit(tiles), np.arange(4, dtype=np.float32))

    from jax.experimental import io_callback

    tell = lambda a: io_callback(print, None, a, ordered=True)
    ordered = jax.shard_map(tell, mesh=mesh, in_specs=P("x"), out_specs=None)
    add("tokens", jax.jit(ordered), np.arange(4, dtype=np.float32))


def calls_of_lapack():
    x = floats(2, 5, 4)
    spd = jnp.matmul(x.swapaxes(1, 2), x) + np.eye(4, dtype=np.float32)

    def factorisations(x, spd):
        q, r = jnp.linalg.qr(x)
        u, s, vt = jnp.linalg.svd(x)
        values, vectors = jnp.linalg.eigh(spd)
        transposed = jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(spd[0]), True), spd[1])
        return (jnp.abs(q), jnp.abs(r), s, jnp.matmul(u[..., :4] * s[:, None], vt),
                jnp.matmul(u.swapaxes(1, 2), u), values,
                jnp.matmul(vectors * values[:, None], vectors.swapaxes(1, 2)),
                jnp.linalg.solve(spd, x.swapaxes(1, 2)), jnp.linalg.cholesky(-spd), transposed,
                jax.scipy.linalg.lu_factor(spd[0] - 3))

    add("factorisations", factorisations, x, np.asarray(spd))
    add("hessenberg", lambda x: jax.scipy.linalg.hessenberg(x), np.asarray(spd[0]))


def unknown_sizes():
    """A program for any number of rows, as jax.export writes it. It cannot be computed with."""
    from jax import export

    rows, = export.symbolic_shape("rows")
    argument = jax.ShapeDtypeStruct((rows, 3), np.float32)
    add("symbolic_shape", jax.jit(lambda x: x * 2), argument)


for family in (
    bodies,
    complex_numbers,
    floats_of_8_bits,
    integers_of_4_bits,
    floats_of_4_bits,
    elementwise,
    types,
    shapes,
    sums,
    products,
    indexing,
    control,
    random,
    linear_algebra,
    training,
    calls_of_lapack,
    unknown_sizes,
):
    family()
if len(jax.devices()) >= 8:
    sharded()
    host_calls()
