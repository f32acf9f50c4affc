"""Writes golden/linalg.json: factorisations, solutions and their gradients, as JAX computes them
in f64. Vectors that are defined up to their sign have the sign that Tessera gives them.

Run in an environment with jax; the tests only read what it wrote.
"""
import json
import pathlib

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np

jax.config.update("jax_enable_x64", True)
FILE = pathlib.Path(__file__).parent / "golden" / "linalg.json"
ROUNDS = 3
rng = np.random.default_rng(11)


def array(shape, low=-2.0, high=2.0):
    """Multiples of 1/64, which JSON holds exactly."""
    return np.round(rng.uniform(low, high, shape) * 64) / 64


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


def signs(vectors):
    """Per column the sign of the first element that is larger than half of the largest one."""
    size = jnp.abs(vectors)
    first = jnp.argmax(size > size.max(-2, keepdims=True) / 2, -2, keepdims=True)
    return jax.lax.stop_gradient(jnp.sign(jnp.take_along_axis(vectors, first, -2)))


def eigh(a):
    values, vectors = jnp.linalg.eigh(a)
    return values, vectors * signs(vectors)


def svd(a):
    u, s, vt = jnp.linalg.svd(a, full_matrices=False)
    sign = signs(u)
    return u * sign, s, vt * jnp.swapaxes(sign, -1, -2)


def lu_factor(a):
    packed_factors, pivots, permutation = jax.lax.linalg.lu(a)
    return packed_factors, pivots, permutation


def spd(shape):
    x = array(shape)
    return np.round((x @ np.swapaxes(x, -1, -2) + 2 * np.eye(shape[-1])) * 64) / 64


def batches():
    for _ in range(ROUNDS):
        yield tuple(int(n) for n in rng.integers(1, 4, int(rng.integers(0, 3))))


def sizes(least=1):
    return int(rng.integers(least, 7))


def factorisations():
    for batch in batches():
        n, m = sizes(2), sizes(2)
        yield case("cholesky", jnp.linalg.cholesky, spd(batch + (n, n)))
        yield case("lu_factor", lambda a: lu_factor(a)[0], array(batch + (n, m)))
        yield case("lu_pivots", lambda a: lu_factor(a)[1:], array(batch + (n, m)),
                   differentiable=False)
        tall = batch + (max(n, m), min(n, m))
        yield case("qr", jnp.linalg.qr, array(tall), full=False)
        yield case("qr", lambda a: jnp.linalg.qr(a, mode="complete"), array(tall), full=True,
                   differentiable=False)
        wide = batch + (min(n, m), max(n, m) + 1)
        yield case("qr", jnp.linalg.qr, array(wide), full=False, differentiable=False)
        yield case("eigh", eigh, array(batch + (n, n)))
        yield case("eigvalsh", jnp.linalg.eigvalsh, array(batch + (n, n)))
        yield case("svd", svd, array(batch + (n, m)))
        yield case("svdvals", jnp.linalg.svdvals, array(batch + (n, m)))


def systems():
    for batch in batches():
        n, count = sizes(2), sizes()
        a, b = array(batch + (n, n)), array(batch + (n, count))
        yield case("solve", jnp.linalg.solve, a, b)
        yield case("solve", jnp.linalg.solve, a, array((n,)))
        yield case("lu_solve", lambda x, y: jsl.lu_solve(jsl.lu_factor(x), y), array((n, n)),
                   array((n, count)))
        yield case("cholesky_solve", lambda x, y: jsl.cho_solve((x, True), y),
                   a + 4 * np.eye(n), b)
        for lower in (False, True):
            transpose, unit = (bool(flag) for flag in rng.integers(0, 2, 2))
            how = dict(lower=lower, unit_diagonal=unit)
            yield case("solve_triangular",
                       lambda x, y: jsl.solve_triangular(x, y, trans=int(transpose), **how),
                       a + 4 * np.eye(n), b, transpose=transpose, **how)
        tall = array((n + count, n))
        yield case("lstsq", lambda x, y: jnp.linalg.lstsq(x, y)[0], tall, array((n + count, 2)))
        yield case("pinv", jnp.linalg.pinv, array(batch + (n + 1, n)))
        yield case("inv", jnp.linalg.inv, a)
        yield case("det", jnp.linalg.det, a)
        yield case("slogdet", lambda x: tuple(jnp.linalg.slogdet(x)), a)
        power = int(rng.integers(-3, 6))
        yield case("matrix_power", lambda x: jnp.linalg.matrix_power(x, power), a, n=power)
        thin = array(batch + (n, 1)) @ array(batch + (1, n))
        yield case("matrix_rank", jnp.linalg.matrix_rank, thin, differentiable=False)


CASES = [c for make in (factorisations, systems) for c in make()]
FILE.write_text(json.dumps(dict(source=f"JAX {jax.__version__}, NumPy {np.__version__}",
                                cases=CASES)) + "\n")
