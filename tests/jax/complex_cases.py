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
FAR = [(sign * np.inf, y) for sign in (1, -1) for y in (0, 2, np.inf, np.nan)] + [(20, np.inf)]
add("tanh_ends", jnp.tanh, np.array([complex(*pair) for pair in FAR], np.complex64))
add("tan_ends", jnp.tan, np.array([complex(*pair[::-1]) for pair in FAR], np.complex64))
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
for length in (1, 2, 3, 7, 12, 31, 64, 67, 130, 360, 1021, 1024, 4099, 4489, 6000, 8198):
    row = array(2, length)
    add(f"fft_{length}", jnp.fft.fft, row)
    add(f"ifft_{length}", jnp.fft.ifft, row)
    add(f"rfft_{length}", jnp.fft.rfft, row.real)
for length in (1, 2, 3, 12, 31, 130, 1000, 1021, 1024, 2211, 4092, 8198, 10007):
    add(f"irfft_{length}", functools.partial(jnp.fft.irfft, n=length), array(2, length // 2 + 1))
for name in "fft2 ifft2 irfft2 fftn ifftn".split():
    add(name, getattr(jnp.fft, name), array(2, 6, 10, 12))
add("rfftn", lambda a: jnp.fft.rfftn(a.real, axes=(1, 2)), array(6, 10, 12))
for length in (12, 130, 1000):
    add(f"rfft_of_axis_{length}", functools.partial(jnp.fft.rfft, axis=1), array(2, length, 3).real)
    add(f"irfft_of_axis_{length}", functools.partial(jnp.fft.irfft, axis=1, n=length),
        array(2, length // 2 + 1, 3))
    add(f"rfft_grad_{length}", jax.grad(lambda v: jnp.sum(jnp.abs(jnp.fft.rfft(v))**2) / v.size),
        array(length).real)
    add(f"irfft_grad_{length}", jax.grad(lambda v: jnp.sum(jnp.fft.irfft(v)**3)),
        array(length // 2 + 1))
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
    CASES[f"rfft_{length}_x64"] = functools.partial(same_x64, jnp.fft.rfft, row.real)
    CASES[f"irfft_{length}_x64"] = functools.partial(same_x64, jnp.fft.irfft, row)


def step(x, w):
    def loss(w):
        return (jnp.abs(jnp.fft.fft(x @ w))**2).mean()
    value, gradient = jax.value_and_grad(loss)(w)
    return value, w - 0.1 * gradient.conj(), jnp.exp(x).sum(0)


def transform_errors():
    """Over many lengths, the mean errors are no larger than those of JAX's CPU backend."""
    lengths = [*range(1, 201), 256, 500, 625, 1000, 1021, 1024, 2187, 3125, 3721, 4096, 6007, 10007]
    rows = [array(3, length) for length in lengths]
    kinds = {"fft": jnp.fft.fft, "ifft": jnp.fft.ifft, "rfft": lambda x: jnp.fft.rfft(x.real)}
    wanted = [[getattr(np.fft, name)(row.real.astype("longdouble") if name == "rfft"
                                     else row.astype("clongdouble")) for row in rows]
              for name in kinds]

    def error_of(x, y):
        return float(np.linalg.norm(np.asarray(x) - y) / np.linalg.norm(y))

    errors = []
    for device in (DEVICES[0], jax.devices("cpu")[0]):
        run = jax.jit(lambda rows: [[f(row) for row in rows] for f in kinds.values()])
        found = run(jax.device_put(rows, device))
        errors.append(np.array(jax.tree.map(error_of, found, wanted)))
    own, theirs = errors
    assert (own.mean(1) <= theirs.mean(1)).all(), (own.mean(1), theirs.mean(1))
    assert (own <= 2.5 * theirs + 2e-8).all(), [lengths[i] for i in (own - theirs).argmax(1)]


def on_meshes():
    """The bits are the same on every mesh, also with donated arguments."""
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


def scrambled(*shape):
    """Numbers with few different real and imaginary parts, so that many parts are equal."""
    parts = rng.integers(-2, 3, (2, *shape)).astype(np.float32)
    return parts[0] + 1j * parts[1]


FEW = scrambled(6, 7)
LAST = FEW.copy()
LAST[2, 3], LAST[4, 5], LAST[0, 0] = complex(np.nan, 1), complex(1, np.nan), complex(np.inf, -1)
for axis in (0, 1, None):
    add(f"max_{axis}", functools.partial(jnp.max, axis=axis), FEW)
    add(f"min_{axis}", functools.partial(jnp.min, axis=axis), FEW)
    add(f"prod_{axis}", functools.partial(jnp.prod, axis=axis), array(6, 7))
for axis in (0, 1):
    add(f"sort_{axis}", functools.partial(jnp.sort, axis=axis), FEW)
    add(f"sort_last_{axis}", functools.partial(jnp.sort, axis=axis), LAST)
    add(f"argsort_{axis}", functools.partial(jnp.argsort, axis=axis), FEW)
    add(f"cummax_{axis}", functools.partial(lax.cummax, axis=axis), FEW)
    add(f"cumprod_{axis}", functools.partial(jnp.cumprod, axis=axis), array(6, 7))
add("maximum", jnp.maximum, FEW, FEW[::-1])
add("minimum", jnp.minimum, FEW, FEW[::-1])
add("lexsort", lambda a: jnp.lexsort((a[0], a[1].real)), FEW)
add("sort_several", lambda a, b: lax.sort((b, a), num_keys=2), FEW[0], FEW[1].real)
add("unique", lambda a: jnp.unique(a, size=30), FEW)
add("softmax", jax.nn.softmax, FEW)
add("multiply_at", lambda a, b: a.at[jnp.array([1, 1, 3])].multiply(b), array(4, 5), array(3, 5))
add("multiply_windows", lambda a: lax.reduce_window(a, np.complex64(1), lax.mul, (2, 3), (1, 2),
                                                    "SAME"), array(6, 7))

# --- linear algebra


def hermitian(*shape):
    a = array(*shape)
    return a + a.conj().swapaxes(-1, -2)


def positive(*shape):
    a = array(*shape)
    return a @ a.conj().swapaxes(-1, -2) + 0.5 * np.eye(shape[-1], dtype=a.dtype)


def close(name, function, *arguments):
    CASES[name] = functools.partial(same, function, *arguments, tolerance=2e-4)
    with_64_bits = [a.astype(np.complex128) for a in arguments]
    CASES[name + "_x64"] = functools.partial(in_64_bits, function, with_64_bits)


def in_64_bits(function, arguments):
    with jax.enable_x64(True):
        same(function, *arguments, tolerance=1e-11)


def is_unitary(q):
    return jnp.max(jnp.abs(q.conj().swapaxes(-1, -2) @ q - jnp.eye(q.shape[-1])))


def factors(a):
    q, r = jnp.linalg.qr(a)
    return q @ r, is_unitary(q), jnp.tril(r, -1), jnp.abs(r), jnp.imag(jnp.diagonal(r, 0, -2, -1))


def whole_factors(a):
    q, r = jnp.linalg.qr(a, "complete")
    return q @ r, is_unitary(q)


def eigen(a, lower=True):
    v, w = lax.linalg.eigh(a, lower=lower)
    return w, (v * w[..., None, :]) @ v.conj().swapaxes(-1, -2), is_unitary(v)


def singular(a, full=False):
    u, s, vh = jnp.linalg.svd(a, full_matrices=full)
    k = s.shape[-1]
    return s, (u[..., :k] * s[..., None, :]) @ vh[..., :k, :], is_unitary(u), is_unitary(
        vh.conj().swapaxes(-1, -2))


for left in (True, False):
    for lower in (True, False):
        for kind in ("as it is", "transposed", "adjoint", "conjugate"):
            for unit in (True, False):
                close(f"triangular_{left}_{lower}_{kind}_{unit}", functools.partial(
                    lax.linalg.triangular_solve, left_side=left, lower=lower, unit_diagonal=unit,
                    transpose_a=kind in ("transposed", "adjoint"),
                    conjugate_a=kind in ("adjoint", "conjugate")),
                      0.5 * array(2, 4, 4) + 3 * np.eye(4, dtype=np.complex64),
                      array(2, 4, 3) if left else array(2, 3, 4))
for size in (1, 2, 7, 20):
    close(f"cholesky_{size}", jnp.linalg.cholesky, positive(2, size, size))
    close(f"cholesky_upper_{size}", functools.partial(jnp.linalg.cholesky, upper=True),
          positive(size, size))
    close(f"lu_{size}", jax.scipy.linalg.lu, array(size, size))
    close(f"eigh_{size}", eigen, hermitian(3, size, size))
    close(f"eigh_upper_{size}", functools.partial(eigen, lower=False), array(size, size))
    close(f"solve_{size}", jnp.linalg.solve, positive(size, size), array(size, 3))
    close(f"inverse_{size}", jnp.linalg.inv, positive(2, size, size))
    close(f"det_{size}", lambda a: (jnp.linalg.det(a), jnp.linalg.slogdet(a)),
          array(2, size, size) / size)
close("eigh_equal", eigen, np.kron(np.eye(3), hermitian(2, 2)).astype(np.complex64))
close("eigh_real", eigen, hermitian(5, 5).real.astype(np.complex64))
for rows, cols in ((1, 1), (6, 4), (4, 6), (5, 5), (9, 1), (1, 9)):
    close(f"qr_{rows}_{cols}", factors, array(2, rows, cols))
    close(f"qr_complete_{rows}_{cols}", whole_factors, array(rows, cols))
    close(f"svd_{rows}_{cols}", singular, array(2, rows, cols))
    close(f"svd_full_{rows}_{cols}", functools.partial(singular, full=True), array(rows, cols))
close("svd_of_low_rank", singular, array(6, 2) @ array(2, 5))
close("pinv", jnp.linalg.pinv, array(5, 3))
close("least_squares", lambda a, b: jnp.linalg.lstsq(a, b)[0], array(6, 3), array(6, 2))
close("cholesky_grad", jax.grad(lambda a: jnp.sum(jnp.abs(jnp.linalg.cholesky(a))**2 * 0.3)),
      positive(4, 4))
close("solve_grad", jax.grad(lambda a: jnp.sum(jnp.abs(jnp.linalg.solve(a, a[0]))**2)),
      positive(4, 4))
close("eigh_grad", jax.grad(lambda a: jnp.sum(jnp.linalg.eigh(a)[0]**3)), hermitian(4, 4))
close("svd_grad", jax.grad(lambda a: jnp.sum(jnp.linalg.svd(a, compute_uv=False)**2)), array(5, 3))


# --- calls of Python functions

def called(function):
    """Callbacks on the host take and return complex numbers."""
    def call(a):
        return jax.pure_callback(lambda x: np.asarray(x) * 2j, jax.ShapeDtypeStruct(
            a.shape, a.dtype), a) + function(a)
    return call


add("callback", called(jnp.conj), array(4, 5))
add("callback_in_loop", lambda a: lax.fori_loop(0, 3, lambda i, x: called(jnp.conj)(x) / 4, a),
    array(4, 5))
add("callback_of_several", lambda a: jax.pure_callback(
    lambda x, y: (np.asarray(x) + np.asarray(y), np.asarray(x).real),
    (jax.ShapeDtypeStruct(a.shape, a.dtype), jax.ShapeDtypeStruct(a.shape, np.float32)),
    a, a.real), array(6))


def told():
    seen = []
    jax.jit(lambda a: jax.debug.callback(lambda x: seen.append(np.asarray(x)), a))(FEW)
    jax.effects_barrier()
    np.testing.assert_array_equal(seen[0], FEW)


def strict_promotion():
    """Factorisations must not be affected by this setting of the program."""
    with jax.numpy_dtype_promotion("strict"):
        same(jnp.linalg.qr, array(4, 3), tolerance=2e-5)
        same(lambda a: jnp.linalg.eigvalsh(a + a.conj().T), array(4, 4), tolerance=2e-5)
        same(lambda a: jnp.linalg.svd(a, compute_uv=False), array(3, 4), tolerance=2e-5)


CASES |= {"on_meshes": on_meshes, "in_shard_map": in_shard_map,
          "transform_errors": transform_errors, "told": told,
          "strict_promotion": strict_promotion}

if __name__ == "__main__":
    main(CASES)
