"""Writes golden/statistics.json: values and gradients of statistics, of functions of arrays, and
random numbers, as JAX computes them: all in f64, except random numbers in f32.

Run in an environment with jax; the tests only read what it wrote.
"""
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)
FILE = pathlib.Path(__file__).parent / "golden" / "statistics.json"
ROUNDS = 4
METHODS = ("linear", "lower", "higher", "midpoint", "nearest")
rng = np.random.default_rng(13)


def array(shape, low=-3.0, high=3.0, parts=64):
    """Multiples of 1/parts, which JSON holds exactly."""
    return np.round(rng.uniform(low, high, shape) * parts) / parts


def shape_of(rank):
    return tuple(int(size) for size in rng.integers(1, 6, rank))


def packed(x):
    x = np.asarray(x)
    return dict(shape=list(x.shape), values=x.ravel().tolist())


def case(name, function, *inputs, differentiable=True, **arguments):
    """The value, and the gradients of sum(value * cos(0, 1, 2, ..))."""
    result = dict(name=name, arguments=arguments, inputs=[packed(x) for x in inputs],
                  outputs=[packed(x) for x in jax.tree.leaves(function(*inputs))])

    def loss(*args):
        return sum(jnp.sum(x * jnp.cos(jnp.arange(x.size, dtype=x.dtype)).reshape(x.shape))
                   for x in jax.tree.leaves(function(*args)))

    if differentiable:
        grads = jax.grad(loss, argnums=tuple(range(len(inputs))))(*inputs)
        result["gradients"] = [packed(g) for g in grads]
    return result


def quantiles():
    for round in range(2 * ROUNDS):
        # Every other array has equal elements.
        x = array(shape_of(3), parts=64 if round % 2 else 1)
        axes = sorted(int(a) for a in rng.choice(3, int(rng.integers(1, 4)), replace=False))
        keep = bool(rng.integers(0, 2))
        how = dict(axis=tuple(axes), keepdims=keep)
        shown = [a - 3 * int(rng.integers(0, 2)) for a in axes]
        yield case("median", lambda a: jnp.median(a, **how), x, axes=shown, keep=keep)
        for method in METHODS:
            # A multiple of 1/16 is exact in every dtype.
            q = float(rng.integers(0, 17)) / 16
            yield case("quantile", lambda a: jnp.quantile(a, q, method=method, **how), x, q=q,
                       axes=shown, keep=keep, method=method)
            list_of_q = array((int(rng.integers(1, 4)),), 0.0, 1.0, 16)
            yield case("quantiles", lambda a: jnp.quantile(a, list_of_q, method=method, **how), x,
                       q=list_of_q.tolist(), axes=shown, keep=keep, method=method)
        q = int(rng.integers(0, 101))
        yield case("percentile", lambda a: jnp.percentile(a, q, **how), x, q=q, axes=shown,
                   keep=keep)


def counts():
    for round in range(2 * ROUNDS):
        x = array(shape_of(2), parts=2)
        bins = int(rng.integers(1, 7))
        weights = array(x.shape)
        ends = [-2.0, 2.0] if round % 2 else None
        yield case("histogram", lambda a: jnp.histogram(a, bins, ends), x, differentiable=False,
                   bins=bins, range=ends)
        yield case("weighted_histogram", lambda a, w: jnp.histogram(a, bins, ends, w), x, weights,
                   bins=bins, range=ends)
        edges = np.sort(array((int(rng.integers(2, 6)),), parts=2))
        yield case("histogram_between", lambda a, e: jnp.histogram(a, e), x, edges,
                   differentiable=False)
        numbers = np.round(x * 2)
        length = int(rng.integers(1, 8))
        yield case("bincount", lambda a: jnp.bincount(a.ravel().astype(int), length=length),
                   numbers, differentiable=False, length=length)
        yield case("weighted_bincount", lambda w: jnp.bincount(
            numbers.ravel().astype(int), w.ravel(), length=length), weights,
                   numbers=numbers.ravel().tolist(), length=length)


def searches():
    for _ in range(2 * ROUNDS):
        line = np.sort(array((int(rng.integers(1, 12)),), parts=2))
        x = array(shape_of(2), parts=2)
        for right in (False, True):
            side = "right" if right else "left"
            yield case("searchsorted", lambda s, v: jnp.searchsorted(s, v, side=side), line, x,
                       differentiable=False, right=right)
            yield case("digitize", lambda v, e: jnp.digitize(v, e, right), x, line,
                       differentiable=False, right=right)
            yield case("digitize", lambda v, e: jnp.digitize(v, e, right), x, line[::-1],
                       differentiable=False, right=right)
        yield case("isin", lambda v, s: jnp.isin(v, s).astype(int), x, array(shape_of(2), parts=2),
                   differentiable=False)
        sparse = x * (rng.random(x.shape) < 0.5)
        size, fill = (int(n) for n in rng.integers(0, 9, 2))
        yield case("nonzero", lambda v: jnp.nonzero(v, size=size, fill_value=fill), sparse,
                   differentiable=False, size=size, fill=fill)


def moves():
    for _ in range(ROUNDS):
        x = array(shape_of(4))
        source, destination = ([int(a) - 4 * int(rng.integers(0, 2))
                                for a in rng.choice(4, 2, replace=False)] for _ in range(2))
        yield case("moveaxis", lambda a: jnp.moveaxis(a, source, destination), x, source=source,
                   destination=destination)
        yield case("moveaxis", lambda a: jnp.moveaxis(a, source[0], destination[0]), x,
                   source=source[:1], destination=destination[:1])
        for indexing in ("xy", "ij"):
            for count in (1, 2, 3):
                vectors = [array(shape_of(1)) for _ in range(count)]
                yield case("meshgrid", lambda *v: jnp.meshgrid(*v, indexing=indexing), *vectors,
                           indexing=indexing)
        n, axis = int(rng.integers(0, 4)), int(rng.integers(-4, 4))
        yield case("diff", lambda a: jnp.diff(a, n, axis), x, n=n, axis=axis)


def products():
    for _ in range(ROUNDS):
        a, b, c, d = shape_of(4)
        pairs = (((a, b), (c, d)), ((a, b), (b, d)), ((a, b, c), (b, c, d)))
        for count, shapes in enumerate(pairs):
            yield case("tensordot", lambda x, y: jnp.tensordot(x, y, count), *map(array, shapes),
                       count=count)
        axes = ([0, -1], [1, 0])
        yield case("tensordot_of_axes", lambda x, y: jnp.tensordot(x, y, axes), array((a, b, c)),
                   array((c, a, d)), axes_a=axes[0], axes_b=axes[1])
        yield case("cross", jnp.cross, array((a, b, 3)), array((b, 3)), axis=-1)
        yield case("cross", lambda x, y: jnp.cross(x, y, axis=1), array((a, 3, b)),
                   array((1, 3, b)), axis=1)
        yield case("cross", lambda x, y: jnp.cross(x, y, axis=0), array((3, a)), array((3, a)),
                   axis=0)


def comparisons():
    for rtol, atol in ((1e-5, 1e-8), (0.25, 0.5), (0.0, 0.0)):
        x, y = array((4, 5), parts=2), array((4, 5), parts=2)
        how = dict(rtol=rtol, atol=atol)
        for b in (y, x, x + (y > 2)):
            yield case("isclose", lambda u, v: jnp.isclose(u, v, **how).astype(int), x, b,
                       differentiable=False, **how)
            yield case("allclose", lambda u, v: jnp.allclose(u, v, **how).astype(int), x, b,
                       differentiable=False, **how)


GROUPS = (quantiles, counts, searches, moves, products, comparisons)


def randoms():
    for seed in (0, 42, 2**31 + 5):
        key = jax.random.PRNGKey(seed)
        for name in ("exponential", "laplace", "logistic", "cauchy"):
            draw = getattr(jax.random, name)
            yield case(name, lambda: draw(key, (4, 7)), differentiable=False, seed=seed,
                       shape=[4, 7])
        yield case("rademacher", lambda: jax.random.rademacher(key, (5, 3)),
                   differentiable=False, seed=seed, shape=[5, 3])
        alpha = np.float32([0.01, 0.3, 1.0, 2.5, 100.0])
        beta = np.float32([0.5, 0.02, 1.0, 30.0, 7.0])
        yield case("loggamma", lambda a: jax.random.loggamma(key, a, (3, 5)), alpha,
                   seed=seed, shape=[3, 5])
        yield case("beta", lambda a, b: jax.random.beta(key, a, b, (3, 5)), alpha, beta,
                   seed=seed, shape=[3, 5])
        yield case("dirichlet", lambda a: jax.random.dirichlet(key, a, (2,)),
                   np.stack([alpha, beta]), seed=seed, shape=[2])
        rates = np.float32([0.0, 0.1, 3.0, 9.5, 10.0, 50.0, 5000.0])
        yield case("poisson", lambda r: jax.random.poisson(key, r, (6, 7)), rates,
                   differentiable=False, seed=seed, shape=[6, 7])


def main():
    cases = [c for make in GROUPS for c in make()]
    with jax.enable_x64(False):  # which changes the bits that rademacher draws
        random = list(randoms())
    data = dict(source=f"JAX {jax.__version__}, NumPy {np.__version__}", cases=cases,
                random=random)
    FILE.write_text(json.dumps(data) + "\n")


main()
