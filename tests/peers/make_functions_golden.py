"""Writes golden/functions.json: values and gradients of functions on arrays, and random numbers,
as JAX computes them.

Run in an environment with jax and optax; the tests only read what it wrote.
"""
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import optax

FILE = pathlib.Path(__file__).parent / "golden" / "functions.json"
ROUNDS = 4
TEXT_ROUNDS = 80
rng = np.random.default_rng(7)

UNARY = dict(sigmoid=jax.nn.sigmoid, softplus=jax.nn.softplus, silu=jax.nn.silu)


def array(shape, low=-3.0, high=3.0):
    """Multiples of 1/64, which JSON holds exactly."""
    return np.round(rng.uniform(low, high, shape) * 64).astype(np.float32) / 64


def packed(x):
    x = np.asarray(x)
    return dict(shape=list(x.shape), values=x.ravel().tolist())


def shape_of(rank):
    return tuple(int(size) for size in rng.integers(1, 6, rank))


def case(name, function, *inputs, differentiable=True, **arguments):
    """The value, and the gradients of sum(value * cos(0, 1, 2, ..))."""
    result = dict(name=name, arguments=arguments, inputs=[packed(x) for x in inputs],
                  outputs=[packed(x) for x in jax.tree.leaves(function(*inputs))])

    def loss(*args):
        leaves = jax.tree.leaves(function(*args))
        return sum(jnp.sum(x * jnp.cos(jnp.arange(x.size, dtype=x.dtype)).reshape(x.shape))
                   for x in leaves)

    if differentiable:
        grads = jax.grad(loss, argnums=tuple(range(len(inputs))))(*inputs)
        result["gradients"] = [packed(g) for g in grads]
    return result


def statistics():
    for _ in range(ROUNDS):
        x = array(shape_of(3) + (4,))
        axes = sorted(rng.choice(4, size=int(rng.integers(1, 3)), replace=False).tolist() + [3])
        axes = sorted(set(axes))
        ddof = int(rng.integers(0, 2))
        where = dict(axes=axes, keep=bool(rng.integers(0, 2)), ddof=ddof)
        how = dict(axis=tuple(axes), keepdims=where["keep"])
        yield case("var", lambda a: jnp.var(a, ddof=ddof, **how), x, **where)
        yield case("stddev", lambda a: jnp.std(a, ddof=ddof, **how), x, **where)
        yield case("norm", lambda a: jnp.sqrt(jnp.sum(a * a, **how)), x, **where)


def matrices():
    for _ in range(ROUNDS):
        k = int(rng.integers(-3, 4))
        x = array(shape_of(3))
        yield case("tril", lambda a: jnp.tril(a, k), x, offset=k)
        yield case("triu", lambda a: jnp.triu(a, k), x, offset=k)
        yield case("diag", lambda a: jnp.diag(a, k), array(shape_of(1)), offset=k)
        yield case("diag", lambda a: jnp.diag(a, k), array(shape_of(2)), offset=k)
        yield case("outer", jnp.outer, array(shape_of(2)), array(shape_of(1)))
        yield case("kron", jnp.kron, array(shape_of(2)), array(shape_of(2)))
        yield case("kron", jnp.kron, array(shape_of(1)), array(shape_of(3)))
        rows, columns = (int(size) for size in rng.integers(1, 7, 2))
        yield case("eye", lambda: jnp.eye(rows, columns, k), differentiable=False, rows=rows,
                   columns=columns, offset=k)


def shapes():
    for _ in range(ROUNDS):
        x = array((6,) + shape_of(1) + (4,))
        axis = int(rng.integers(0, 3))
        shift = int(rng.integers(-9, 10))
        yield case("roll", lambda a: jnp.roll(a, shift, axis), x, axis=axis, shift=shift)
        yield case("flip", lambda a: jnp.flip(a, axis), x, axis=axis)
        repeats = [int(n) for n in rng.integers(1, 4, int(rng.integers(1, 5)))]
        yield case("tile", lambda a: jnp.tile(a, repeats), x, repeats=repeats)
        parts = int(rng.choice([1, 2]))
        yield case("split", lambda a: jnp.split(a, parts, 2), x, axis=2, parts=parts)
        at = sorted(int(n) for n in rng.integers(0, 7, 2))
        yield case("split_at", lambda a: jnp.split(a, at, 0), x, axis=0, positions=at)
        values = rng.integers(-2, 3, (3, 7)).astype(np.float32)
        yield case("argsort", lambda a: jnp.argsort(a, 1), values, differentiable=False, axis=1)
        count = int(rng.integers(0, 9))
        start, stop = (float(v) for v in array((2,)))
        yield case("linspace", lambda: jnp.linspace(start, stop, count), differentiable=False,
                   start=start, stop=stop, count=count)


def elementwise():
    for name, function in UNARY.items():
        yield case(name, function, array((3, 5), -20.0, 20.0))
        yield case(name, function, np.zeros((2,), np.float32))
    yield case("log10", jnp.log10, array((3, 5), 0.1, 2000.0))


TEXTS = ("ab,bc,cd->ad", "a,b,c->abc", "abc,cd,ad->b", "ab,ab,ab->", "ij,jk,kl,lm->mi",
         "bhi,bhj,ij->bh")


def einsums():
    for text in TEXTS:
        for _ in range(2):
            sizes = {letter: int(rng.integers(1, 5)) for letter in "abcdhijklm"}
            operands = [array([sizes[letter] for letter in part], -1.0, 1.0)
                        for part in text.split("->")[0].split(",")]
            yield case("einsum", lambda *args: jnp.einsum(text, *args), *operands, text=text)


def randoms():
    for seed in (0, 42):
        key = jax.random.PRNGKey(seed)
        logits = array((3, 4, 5))
        p = np.float32([0.125, 0.5, 0.0, 0.25, 0.125])
        yield case("gumbel", lambda: jax.random.gumbel(key, (3, 7)), differentiable=False,
                   seed=seed, shape=[3, 7])
        for axis in (-1, 0, 1):
            yield case("categorical", lambda x: jax.random.categorical(key, x, axis), logits,
                       differentiable=False, seed=seed, axis=axis, samples=[])
        yield case("categorical", lambda x: jax.random.categorical(key, x, 1, (2, 6, 3, 5)),
                   logits, differentiable=False, seed=seed, axis=1, samples=[2, 6])
        for replace in (True, False):
            for has_p in (True, False):
                weights = p if has_p else None
                yield case("choice",
                           lambda: jax.random.choice(key, 5, (2, 2), replace, weights),
                           differentiable=False, seed=seed, replace=replace,
                           p=p.tolist() if has_p else None)


def resizes():
    for _ in range(2 * ROUNDS):
        x = array(shape_of(1) + tuple(int(n) for n in rng.integers(1, 9, 2)))
        shape = list(x.shape[:1]) + [int(n) for n in rng.integers(1, 13, 2)]
        for method in ("nearest", "linear", "cubic"):
            antialias = bool(rng.integers(0, 2))
            yield case("resize", lambda a: jax.image.resize(a, shape, method, antialias), x,
                       shape=shape, method=method, antialias=antialias)


def larger_resizes():
    """The results, or their gradients, are sums of few terms. JAX computes the weights of these
    sizes in f32 without rounding.
    """
    for n, size, method in ((40, 80, "linear"), (64, 32, "linear"), (96, 12, "linear"),
                            (48, 96, "cubic")):
        x = (np.arange(2 * n, dtype=np.float32) * 37 % 384 - 192).reshape(2, n, 1) / 64
        shape = [2, size, 2]
        yield case("resize", lambda a: jax.image.resize(a, shape, method), x,
                   shape=shape, method=method, antialias=True)


def ctc_losses():
    for _ in range(2 * ROUNDS):
        batch, classes, labels = (int(n) for n in rng.integers(1, 6, 3))
        classes += 1
        frames = 2 * labels + int(rng.integers(1, 6))
        logits = array((batch, frames, classes))
        blank = int(rng.integers(0, classes))
        counts = rng.integers(0, labels + 1, batch)
        lengths = np.minimum(2 * counts + rng.integers(1, 6, batch), frames)
        names = rng.choice([c for c in range(classes) if c != blank], (batch, labels))
        pads = [(np.arange(size) >= many[:, None]).astype(np.float32)
                for size, many in ((frames, lengths), (labels, counts))]
        yield case("ctc_loss", lambda a: optax.losses.ctc_loss(
            a, pads[0], names, pads[1], blank_id=blank), logits,
                   lengths=lengths.tolist(), labels=names.ravel().tolist(), counts=counts.tolist(),
                   blank=blank)


def uniques():
    for round in range(2 * ROUNDS):
        x = np.round(array(shape_of(2)))
        size = int(rng.integers(1, 9))
        fill = None if round % 2 else float(rng.integers(-9, 9))
        yield case("unique", lambda a: jnp.unique(
            a, size=size, fill_value=fill, return_index=True, return_inverse=True,
            return_counts=True), x, differentiable=False, size=size, fill=fill)


def thirds(x):
    """The leading 20 bits of numbers from 0 to 1, then the next 20 and the next 20."""
    parts = []
    for _ in range(3):
        x = x * 2.0**20
        parts.append(jnp.floor(x).astype(jnp.int32))
        x = x - jnp.floor(x)
    return parts


def other_randoms():
    for seed in (3, 2**31 + 5):
        key = jax.random.PRNGKey(seed)
        for dtype in ("f16", "bf16", "f64"):
            kind = dict(f16=jnp.float16, bf16=jnp.bfloat16, f64=jnp.float64)[dtype]
            with jax.enable_x64(dtype == "f64"):
                yield case("uniform", lambda: thirds(jax.random.uniform(key, (3, 5), kind)
                                                     .astype(jnp.float64)),
                           differentiable=False, seed=seed, shape=[3, 5], dtype=dtype)
                if dtype == "f64":
                    yield case("normal", lambda: jax.random.normal(key, (4, 3), kind),
                               differentiable=False, seed=seed, shape=[4, 3], dtype=dtype)
        alpha = np.float32([0.01, 0.3, 1.0, 2.5, 100.0])
        yield case("gamma", lambda a: jax.random.gamma(key, a, (6, 5)), alpha,
                   differentiable=False, seed=seed, shape=[6, 5])


ACTIVATIONS = dict(log_sigmoid=jax.nn.log_sigmoid, selu=jax.nn.selu, mish=jax.nn.mish,
                   soft_sign=jax.nn.soft_sign, relu6=jax.nn.relu6,
                   hard_sigmoid=jax.nn.hard_sigmoid, hard_silu=jax.nn.hard_silu,
                   hard_tanh=jax.nn.hard_tanh)


def activations():
    for name, function in ACTIVATIONS.items():
        yield case(name, function, array((3, 5), -9.0, 9.0))
    for number in (0.25, 1.5):
        yield case("leaky_relu", lambda a: jax.nn.leaky_relu(a, number), array((3, 5)),
                   number=number)
        yield case("elu", lambda a: jax.nn.elu(a, number), array((3, 5), -99.0, 99.0),
                   number=number)
    for axis in (0, 1, -1):
        yield case("glu", lambda a: jax.nn.glu(a, axis), array((4, 2, 6)), axis=axis)


def losses():
    for shape in ((5,), (3, 4), (2, 3, 4)):
        # Optax's gradient of the targets is NaN where these are 0.
        targets = (np.abs(array(shape)) * (rng.random(shape) < 0.7)).astype(np.float32)
        yield case("kl_divergence", lambda p: optax.losses.kl_divergence(p, targets), array(shape),
                   targets=targets.ravel().tolist())
        yield case("cosine_similarity", optax.losses.cosine_similarity, array(shape),
                   array(shape))
        yield case("logaddexp", jnp.logaddexp, array(shape, -30.0, 30.0), array(shape))


def cumulative():
    for size in (1, 2, 3, 7, 8, 13):
        for reverse in (False, True):
            axis = int(rng.integers(0, 2))
            x = array((size, 4) if axis == 0 else (3, size))
            yield case("cumlogsumexp", lambda a: jax.lax.cumlogsumexp(a, axis, reverse), x,
                       axis=axis, reverse=reverse)
            yield case("associative_scan", lambda a, b: jax.lax.associative_scan(
                lambda l, r: (r[0] * l[0], r[0] * l[1] + r[1]), (a, b), reverse, axis),
                       x / 4, array(x.shape), axis=axis, reverse=reverse)


def repeats():
    for axis in (0, 1, -1):
        times = int(rng.integers(0, 4))
        yield case("repeat", lambda a: jnp.repeat(a, times, axis), array((2, 3, 4)), times=times,
                   axis=axis)


def segments():
    reductions = dict(segment_sum=jax.ops.segment_sum, segment_max=jax.ops.segment_max,
                      segment_min=jax.ops.segment_min)
    for _ in range(ROUNDS):
        rows = int(rng.integers(6, 20))
        # Every segment has a row, since JSON has no infinities. Some rows have no segment.
        ids = rng.permutation(np.concatenate([np.arange(3), rng.integers(-1, 5, rows - 3)]))
        x = np.round(array((rows,) + shape_of(1)))  # with equal elements
        for name, function in reductions.items():
            yield case(name, lambda a: function(a, ids, 3), x, ids=ids.tolist(), count=3)
        inside = ((ids >= 0) & (ids < 3)).astype(np.float32)
        sizes = jax.ops.segment_sum(inside, ids, 3)
        yield case("segment_mean", lambda a: jax.ops.segment_sum(a, ids, 3) / sizes[:, None], x,
                   ids=ids.tolist(), count=3)

        def softmax(a):
            shares = jnp.zeros_like(a)
            for i in range(3):
                place = np.where(ids == i)[0]
                shares = shares.at[place].set(jax.nn.softmax(a[place], 0))
            return shares
        yield case("segment_softmax", softmax, x, ids=ids.tolist(), count=3)


def kinks():
    """Points where functions are not smooth, and both zeros. The derivative of abs at 0 differs."""
    x = np.float32([[-6, -3, -1, -0.5, -0.0], [0, 0.5, 1, 3, 6]])
    y = np.float32([[-6, -2, -1, 0.5, 0.0], [0, -0.5, 1, 2, 7]])
    functions = dict(ACTIVATIONS, relu=jax.nn.relu, sign=jnp.sign,
                     softplus=jax.nn.softplus, silu=jax.nn.silu,
                     clamp=lambda a: jax.lax.clamp(-1.0, a, 3.0))
    for name, function in functions.items():
        yield case(name, function, x)
    for number in (0.25, 1.5):
        yield case("leaky_relu", lambda a: jax.nn.leaky_relu(a, number), x, number=number)
        yield case("elu", lambda a: jax.nn.elu(a, number), x, number=number)
    yield case("maximum", jnp.maximum, x, y)
    yield case("minimum", jnp.minimum, x, y)
    yield case("logaddexp", jnp.logaddexp, x, y)
    yield case("huber_loss", optax.losses.huber_loss, x, y)


def random_text(draw):
    """A text for np.einsum and the shapes of its operands."""
    letters = [str(c) for c in draw.choice(list("abcXYZ"), int(draw.integers(1, 4)), replace=False)]
    sizes = {letter: int(draw.integers(1, 5)) for letter in letters}
    rest = [int(n) for n in draw.integers(1, 4, int(draw.integers(0, 3)))]  # what `...` stands for
    parts, shapes = [], []
    for _ in range(int(draw.integers(1, 4))):
        part = [str(c) for c in draw.choice(letters, int(draw.integers(0, 4)))]
        shape = [1 if part.count(c) == 1 and draw.random() < 0.1 else sizes[c] for c in part]
        if draw.random() < 0.4:
            at = int(draw.integers(0, len(part) + 1))
            part.insert(at, "...")
            shape[at:at] = [1 if draw.random() < 0.3 else n
                            for n in rest[int(draw.integers(0, len(rest) + 1)):]]
        parts.append((" " if draw.random() < 0.2 else "").join(part))
        shapes.append(shape)
    text = ",".join(parts)
    if draw.random() < 0.7:
        named = sorted({c for c in text if c.isalpha()})
        result = [str(c) for c in draw.permutation(named or [""]) if draw.random() < 0.6]
        if "..." in text:
            result.insert(int(draw.integers(0, len(result) + 1)), "...")
        text += "->" + "".join(result)
    return text, shapes


def einsum_texts():
    """NumPy's values. The loss is linear in each operand, so its gradient has the losses of unit
    arrays."""
    draw = np.random.default_rng(8)
    for text, shapes in [random_text(draw) for _ in range(TEXT_ROUNDS)]:
        operands = [np.round(draw.uniform(-64, 64, shape)) / 64 for shape in shapes]
        value = np.einsum(text, *operands)
        weights = np.cos(np.arange(value.size)).reshape(value.shape)
        gradients = []
        for k, x in enumerate(operands):
            units = np.eye(x.size).reshape((x.size,) + x.shape)
            losses = [np.sum(weights * np.einsum(text, *operands[:k], unit, *operands[k + 1:]))
                      for unit in units]
            gradients.append(np.reshape(losses, x.shape))
        yield dict(name="einsum", arguments=dict(text=text), inputs=[packed(x) for x in operands],
                   outputs=[packed(value)],
                   gradients=[packed(np.float32(x)) for x in gradients])


def metric_losses():
    draw = np.random.default_rng(9)
    for shape in ((6,), (3, 4), (2, 3, 5)):
        a, b, c = (np.round(draw.uniform(-2, 2, shape) * 64).astype(np.float32) / 64
                   for _ in range(3))
        signs = np.where(draw.random(shape) < 0.5, np.float32(-1), np.float32(1))
        yield case("hinge_loss", optax.losses.hinge_loss, a, signs)
        yield case("triplet_margin_loss", lambda *x: optax.losses.triplet_margin_loss(
            *x, margin=0.75, eps=1e-3), a, b, c)


def rotary(x, positions, base, features, interleaved):
    """Pairs of features as complex numbers."""
    turns = base ** (-np.arange(0, features, 2) / features)
    by = np.exp(1j * np.asarray(positions)[..., None, None] * turns).astype(np.complex64)
    first = x[..., :features]
    real, imaginary = ((first[..., 0::2], first[..., 1::2]) if interleaved
                       else jnp.split(first, 2, -1))
    z = (real + 1j * imaginary) * by
    turned = (jnp.stack([z.real, z.imag], -1).reshape(first.shape) if interleaved
              else jnp.concatenate([z.real, z.imag], -1))
    return jnp.concatenate([turned, x[..., features:]], -1)


def rotary_embeddings():
    draw = np.random.default_rng(10)
    for shape, base, features, interleaved, per_row in (
            ((5, 2, 8), 10000.0, 8, False, False), ((2, 4, 3, 6), 10000.0, 6, True, True),
            ((2, 7, 1, 10), 500.0, 4, False, True), ((3, 2, 2, 2), 10.0, 2, True, False)):
        x = np.round(draw.uniform(-3, 3, shape) * 64).astype(np.float32) / 64
        positions = draw.integers(0, 60, shape[:-2] if per_row else shape[-3:-2])
        yield case("rotary_embedding",
                   lambda a: rotary(a, positions, base, features, interleaved), x,
                   base=base, features=features, interleaved=interleaved,
                   positions=positions.ravel().tolist(), rows=list(positions.shape))


CASES = [c for make in (statistics, matrices, shapes, elementwise, einsums, randoms, resizes,
                        ctc_losses, uniques, other_randoms, activations, losses, cumulative,
                        segments, repeats, kinks, einsum_texts, metric_losses,
                        rotary_embeddings, larger_resizes)
         for c in make()]
FILE.write_text(json.dumps(dict(source=f"JAX {jax.__version__}, NumPy {np.__version__}",
                                cases=CASES)) + "\n")
