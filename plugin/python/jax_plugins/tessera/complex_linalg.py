"""Factorisations of complex matrices. For eigh and svd, reflections first make the matrix real, and
the rest is a factorisation of a real matrix."""
import jax.numpy as jnp
from jax import lax


def _reflection(x, start):
    """v, tau and beta of the reflection H = 1 - tau v v^H. H^H x equals x before `start`, is beta
    at `start` and zero after it. v is zero before `start` and one at `start`. beta is real."""
    places = jnp.arange(x.shape[0])
    size = jnp.max(jnp.where(places >= start, jnp.abs(x), 0), initial=0)
    size = jnp.where(size > 0, size, 1)
    x = x / size
    below = jnp.where(places > start, x, 0)
    alpha = x[start]
    rest = jnp.sum(jnp.real(below)**2 + jnp.imag(below)**2)
    norm = jnp.sqrt(rest + jnp.real(alpha)**2 + jnp.imag(alpha)**2)
    beta = jnp.where(jnp.real(alpha) < 0, norm, -norm)
    is_done = (rest == 0) & (jnp.imag(alpha) == 0)
    safe = jnp.where(is_done, 1, beta)
    tau = lax.complex((safe - jnp.real(alpha)) / safe, -jnp.imag(alpha) / safe)
    tau = jnp.where(is_done, 0, tau)
    v = jnp.where(is_done, 0, below / jnp.where(is_done, 1, alpha - beta)) + (places == start)
    return v, tau, size * jnp.where(is_done, jnp.real(alpha), beta)


def _from_left(v, factor, a):
    """(1 - factor v v^H) a"""
    return a - factor * jnp.outer(v, v.conj() @ a)


def _from_right(a, v, factor):
    """a (1 - factor v v^H)"""
    return a - factor * jnp.outer(a @ v, v.conj())


def geqrf(a):
    """R, with the vectors of the reflections below its diagonal, and the taus."""
    rows, cols = a.shape

    def step(i, state):
        a, taus = state
        v, tau, beta = _reflection(a[:, i], i)
        # Earlier columns already hold reflections.
        a = jnp.where(jnp.arange(cols) > i, _from_left(v, tau.conj(), a), a)
        places = jnp.arange(rows)
        column = jnp.where(places > i, v, jnp.where(places == i, beta, a[:, i]))
        return a.at[:, i].set(column), taus.at[i].set(tau)

    count = min(rows, cols)
    return lax.fori_loop(0, count, step, (a, jnp.zeros(count, a.dtype)))


def householder_product(a, taus):
    """The first columns of the product of the reflections that are stored below the diagonal."""
    rows, cols = a.shape
    places = jnp.arange(rows)

    def step(i, q):
        i = taus.shape[0] - 1 - i
        v = jnp.where(places > i, a[:, i], 0) + (places == i)
        return _from_left(v, taus[i], q)

    return [lax.fori_loop(0, taus.shape[0], step, jnp.eye(rows, cols, dtype=a.dtype))]


def eigh(a, *, lower):
    """Reflections make the matrix real and tridiagonal."""
    if not lower:  # the lowering in linalg.py has transposed the matrix
        a = a.conj()
    if a.shape[0] == 0:
        return a, jnp.real(jnp.diag(a))
    below = jnp.tril(a, -1)
    a = below + below.conj().T + jnp.diag(jnp.real(jnp.diag(a)))

    def step(i, state):
        a, q = state
        v, tau, _ = _reflection(a[:, i], i + 1)
        return _from_right(_from_left(v, tau.conj(), a), v, tau), _from_right(q, v, tau)

    count = a.shape[0]
    a, q = lax.fori_loop(0, count - 1, step, (a, jnp.eye(count, dtype=a.dtype)))
    side = jnp.real(jnp.diag(a, -1))
    real = jnp.diag(jnp.real(jnp.diag(a))) + jnp.diag(side, -1) + jnp.diag(side, 1)
    values, vectors = jnp.linalg.eigh(real)
    return q @ vectors, values


def svd(a):
    """Reflections from both sides make the matrix real and bidiagonal."""
    rows, cols = a.shape
    if rows < cols:
        u, s, vh = svd(a.conj().T)
        return vh.conj().T, s, u.conj().T
    if cols == 0:
        return a, jnp.zeros(0, jnp.real(a).dtype), jnp.zeros((0, 0), a.dtype)

    def step(i, state):
        a, left, right = state
        v, tau, _ = _reflection(a[:, i], i)
        a, left = _from_left(v, tau.conj(), a), _from_right(left, v, tau)
        # There is nothing to reflect after the last column.
        row = jnp.where(jnp.arange(cols) > i, a[i].conj(), 0)
        v, tau, _ = _reflection(row, jnp.minimum(i + 1, cols - 1))
        tau = jnp.where(i + 1 < cols, tau, 0)
        return _from_right(a, v, tau), left, _from_right(right, v, tau)

    state = a, jnp.eye(rows, dtype=a.dtype), jnp.eye(cols, dtype=a.dtype)
    a, left, right = lax.fori_loop(0, cols, step, state)
    real = jnp.diag(jnp.real(jnp.diag(a))) + jnp.diag(jnp.real(jnp.diag(a, 1)), 1)
    u, s, vt = jnp.linalg.svd(real, full_matrices=False)
    return left[:, :cols] @ u, s, vt @ right.conj().T
