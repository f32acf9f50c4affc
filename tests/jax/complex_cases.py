"""complex_cases.py: programs with complex numbers and Fourier transforms in JAX on Tessera, beside
JAX's CPU backend. Prints what differs."""
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec as P

from cases import DEVICES, main, same

CASES = {}
rng = np.random.default_rng(7)


def array(*shape, dtype=np.complex64):
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)


def same_x64(function, *arguments):
    with jax.enable_x64(True):
        same(function, *arguments, tolerance=1e-13)


def add(name, function, *arguments):
    assert name not in CASES, name
    CASES[name] = functools.partial(same, function, *arguments)


FUNCTIONS = ("abs exp expm1 log log1p sqrt sin cos tan tanh sinh cosh sign negative conj real imag "
             "angle square reciprocal sum prod mean cumsum arcsin arctan arcsinh isfinite isnan")
for name in FUNCTIONS.split():
    add(name, getattr(jnp, name), array(4, 5))
SPECIAL = np.array([0, 1, -1, 1j, -1j, 1e20, 1e-20, 3 + 4j, 2e19 - 3e19j, 1e-30 + 1e-30j],
                   np.complex64)
for name in "abs sqrt log exp sign reciprocal".split():
    add(name + "_special", getattr(jnp, name), SPECIAL)
for name in "add subtract multiply divide power equal not_equal".split():
    add(name, getattr(jnp, name), array(4, 5), array(4, 5))
add("divide_large", jnp.divide, array(9) * np.float32(1e30), array(9) * np.float32(1e30))
ENDS = np.array([0, np.inf, -np.inf, complex(2, np.inf), complex(-np.inf, 1)], np.complex64)
add("divide_ends", lambda a: jnp.array([1 + 2j, -3 + 1j], jnp.complex64)[:, None] / a, ENDS)
add("rsqrt", lax.rsqrt, array(9))
add("sigmoid", jax.nn.sigmoid, array(9))

add("matmul", jnp.matmul, array(3, 4, 5), array(5, 6))
add("einsum", lambda a, b: jnp.einsum("ijk,ilk->ijl", a, b.conj()), array(2, 3, 4), array(2, 5, 4))
add("convolve", lambda a, b: jnp.convolve(a, b), array(9), array(4))
add("where", lambda a, b: jnp.where(a.real > 0, a, b), array(4, 5), array(4, 5))
add("moves", lambda a: jnp.pad(jnp.roll(a.T[::-1], 1), 1, constant_values=2 + 3j)[1:], array(4, 5))
add("concatenate", lambda a, b: jnp.concatenate([a, b]), array(4, 5), array(2, 5))
add("take", lambda a: a[jnp.array([2, 0])], array(4, 5))
add("set", lambda a, b: a.at[1].set(b), array(4, 5), array(5))
add("add_at", lambda a, b: a.at[jnp.array([1, 1])].add(b), array(4, 5), array(2, 5))
add("constants", lambda a: a * (2 + 1j) + jnp.array([1j, 2, 3, 4, 5 + 1j]), array(4, 5))
add("from_real", lambda a: a.astype(jnp.complex64), rng.standard_normal(5).astype(np.float32))
add("arange", lambda a: a + jnp.arange(5, dtype=jnp.complex64), array(5))
add("random", lambda a: a + jax.random.normal(jax.random.key(0), (5,), jnp.complex64), array(5))
add("scan", lambda a: lax.scan(lambda s, t: (s * 0.5 + t, s.real), a[0], a), array(4, 5))
add("while", lambda a: lax.while_loop(lambda s: jnp.abs(s).max() < 100,
                                      lambda s: s * (1.5 + 0.5j), a), array(5))
add("cond", lambda a: lax.cond(a[0].real > 0, lambda v: v * 1j, lambda v: v + 1, a), array(5))
add("grad", jax.grad(lambda v: (jnp.abs(v)**2 * v.real).sum()), array(4, 5))
add("holomorphic", jax.vmap(jax.grad(lambda v: jnp.sin(v) * v, holomorphic=True)), array(5))
add("remat", jax.checkpoint(lambda a: jnp.exp(a) * a), array(5))
add("norm", jnp.linalg.norm, array(4, 5))
add("no_elements", lambda a: (jnp.exp(a), a.sum(), a.prod()), array(0, 5))

# Lengths: small ones, primes, products of them, and powers of two.
for length in (1, 2, 3, 7, 12, 31, 64, 67, 130, 360, 1021, 1024, 4489, 6000):
    row = array(2, length)
    add(f"fft_{length}", jnp.fft.fft, row)
    add(f"ifft_{length}", jnp.fft.ifft, row)
    add(f"rfft_{length}", jnp.fft.rfft, row.real)
for length in (2, 3, 12, 31, 130, 1000, 1021):
    add(f"irfft_{length}", functools.partial(jnp.fft.irfft, n=length), array(2, length // 2 + 1))
for name in "fft2 ifft2 irfft2 fftn ifftn".split():
    add(name, getattr(jnp.fft, name), array(2, 6, 10, 12))
add("rfftn", lambda a: jnp.fft.rfftn(a.real, axes=(1, 2)), array(6, 10, 12))
add("fft_of_none", lambda a: lax.fft(a, "FFT", (0,)), array(3, 0))
add("fft_of_axis", lambda a: jnp.fft.fft(a, axis=1), array(2, 6, 5))
add("fft_grad", jax.grad(lambda v: (jnp.abs(jnp.fft.fft(v))**3).sum()), array(12))
add("rfft_grad", jax.grad(lambda v: (jnp.abs(jnp.fft.rfft(v))**3).sum()), array(12).real)
add("fftconvolve", lambda a, b: jax.scipy.signal.fftconvolve(a, b, mode="same"), array(33).real,
    array(8).real)

for name in "exp log sqrt tanh divide".split():
    operands = [array(4, 5, dtype=np.complex128) for _ in range(2 if name == "divide" else 1)]
    CASES[name + "_x64"] = functools.partial(same_x64, getattr(jnp, name), *operands)
for length in (12, 67, 1000):
    row = array(3, length, dtype=np.complex128)
    CASES[f"fft_{length}_x64"] = functools.partial(same_x64, jnp.fft.fft, row)


def step(x, w):
    def loss(w):
        return (jnp.abs(jnp.fft.fft(x @ w))**2).mean()
    value, gradient = jax.value_and_grad(loss)(w)
    return value, w - 0.1 * gradient.conj(), jnp.exp(x).sum(0)


def on_meshes():
    """The same bits on every mesh, those of arguments that were donated included."""
    x, w = array(8, 16), array(16, 8)
    same(step, x, w)
    wanted = [np.asarray(leaf).tobytes() for leaf in jax.jit(step)(x, w)]
    for count in (2, 4, 8):
        mesh = jax.sharding.Mesh(DEVICES[:count], ("data",))
        for specs in ((P("data"), P()), (P(None, "data"), P("data")), (P(), P(None, "data"))):
            places = [NamedSharding(mesh, spec) for spec in specs]
            placed = [jax.device_put(a, place) for a, place in zip((x, w), places)]
            run = jax.jit(step, donate_argnums=1, out_shardings=(None, places[1], None))
            found = [np.asarray(leaf).tobytes() for leaf in run(*placed)]
            assert found == wanted, (count, specs)


def in_shard_map():
    x = array(8, 16)
    mesh = jax.sharding.Mesh(DEVICES, ("data",))

    def of_tile(tile):
        return lax.psum(tile * 1j, "data"), lax.all_gather(tile, "data"), jnp.fft.fft(tile)

    run = jax.jit(jax.shard_map(of_tile, mesh=mesh, in_specs=P("data"),
                                out_specs=(P(), P(), P("data")), check_vma=False))
    total, gathered, transformed = run(jax.device_put(x, NamedSharding(mesh, P("data"))))
    np.testing.assert_allclose(total, x.sum(0, keepdims=True) * 1j, atol=2e-6)
    np.testing.assert_array_equal(gathered[:, 0], x)
    np.testing.assert_allclose(transformed, np.fft.fft(x), atol=1e-5)


def refused():
    """What is not supported names itself."""
    for name in ("sort", "max"):
        try:
            jax.jit(getattr(jnp, name))(array(5))
        except jax.errors.JaxRuntimeError as error:
            assert "complex" in str(error), error
        else:
            raise AssertionError(name)


CASES |= {"on_meshes": on_meshes, "in_shard_map": in_shard_map, "refused": refused}

if __name__ == "__main__":
    main(CASES)
