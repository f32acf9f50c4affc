"""linalg_cases.py: linear algebra in JAX on Tessera, values and gradients beside JAX's CPU backend,
over random sizes. Prints what differs."""
import functools

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jax import export

from cases import main, same

CASES = {}
rng = np.random.default_rng(5)


def array(*shape, dtype):
    return rng.uniform(-1, 1, shape).astype(dtype)


def dominant(*shape, dtype):
    """A well-conditioned matrix with distinct eigenvalues."""
    return array(*shape, dtype=dtype) + np.diag(2.0 + np.arange(shape[-1])).astype(dtype)


def absolute(function):
    """The absolute values of results that are vectors defined up to their sign."""
    return lambda *args: jax.tree.map(jnp.abs, function(*args))


def loss(function):
    def total(*args):
        return sum(jnp.sum(jnp.cos(x) * jnp.arange(x.size).reshape(x.shape))
                   for x in jax.tree.leaves(function(*args)))
    return total


def exported(function):
    """As a program for JAX's CPU backend, which calls LAPACK."""
    def call(*args):
        types = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in args]
        unchecked = [export.DisabledSafetyCheck.platform()]
        return export.export(jax.jit(function), platforms=["cpu"],
                             disabled_checks=unchecked)(*types).call(*args)

    return call


def add_case(name, function, *args, differentiable=True, is_exported=True):
    tolerance = 2e-4 if np.finfo(args[0].dtype).bits == 32 else 1e-9
    CASES[name] = functools.partial(same, function, *args, tolerance=tolerance)
    if is_exported:
        CASES[name + "_exported"] = functools.partial(same, exported(function), *args,
                                                      tolerance=tolerance)
    if differentiable:
        gradient = jax.grad(loss(function), argnums=tuple(range(len(args))))
        CASES[name + "_grad"] = functools.partial(same, gradient, *args, tolerance=tolerance)


def add_factorisations(tag, batch, n, m, dtype):
    square = dominant(*batch, n, n, dtype=dtype)
    other = array(*batch, n, m, dtype=dtype)
    tall = dominant(*batch, max(n, m), min(n, m), dtype=dtype) if n == m else array(
        *batch, max(n, m), min(n, m), dtype=dtype)
    add_case("cholesky" + tag, jnp.linalg.cholesky, square)
    add_case("cholesky_upper" + tag, lambda x: jnp.linalg.cholesky(x, upper=True), square)
    add_case("eigh" + tag, absolute(jnp.linalg.eigh), square)
    add_case("eigh_upper" + tag, absolute(lambda x: jnp.linalg.eigh(x, UPLO="U")), square)
    add_case("eigvalsh" + tag, jnp.linalg.eigvalsh, square)
    add_case("qr" + tag, jnp.linalg.qr, tall)
    for mode in ("complete", "r", "raw"):
        add_case(f"qr_{mode}{tag}", functools.partial(jnp.linalg.qr, mode=mode), other,
            differentiable=False)
    add_case("svd" + tag, absolute(lambda x: jnp.linalg.svd(x, full_matrices=False)), other)
    add_case("svdvals" + tag, jnp.linalg.svdvals, other)
    add_case("svd_full" + tag, lambda x: jnp.abs(jnp.matmul(*(
        f(jnp.linalg.svd(x)[0]) for f in (lambda u: u, lambda u: jnp.swapaxes(u, -1, -2))))),
        other, differentiable=False)
    add_case("lu" + tag, jax.lax.linalg.lu, other, differentiable=False)
    add_case("lu_square" + tag, lambda x: jsl.lu_factor(x)[0], square)


def add_systems(tag, batch, n, m, dtype):
    square, right = dominant(*batch, n, n, dtype=dtype), array(*batch, n, m, dtype=dtype)
    add_case("solve" + tag, jnp.linalg.solve, square, right)
    add_case("inv" + tag, jnp.linalg.inv, square)
    add_case("det" + tag, jnp.linalg.det, square)
    add_case("slogdet" + tag, lambda x: tuple(jnp.linalg.slogdet(x)), square)
    add_case("cho_solve" + tag, lambda x, y: jsl.cho_solve((x, True), y), square, right)
    add_case("pinv" + tag, jnp.linalg.pinv, array(*batch, n + 1, n, dtype=dtype))
    add_case("matrix_rank" + tag, jnp.linalg.matrix_rank, square, differentiable=False)
    add_case("lstsq" + tag, lambda x, y: jnp.linalg.lstsq(x, y)[0], dominant(n, n, dtype=dtype),
        array(n, m, dtype=dtype))
    for bits in range(8):
        how = dict(lower=bool(bits & 1), trans=bits >> 1 & 1, unit_diagonal=bool(bits & 4))
        add_case(f"solve_triangular_{bits}{tag}",
            functools.partial(jsl.solve_triangular, **how), square, right)
    for transpose_a in (False, True):
        add_case(f"triangular_right_{transpose_a}{tag}",
            lambda x, y, t=transpose_a: jax.lax.linalg.triangular_solve(
                x, y, left_side=False, transpose_a=t, lower=True),
            square, array(*batch, m, n, dtype=dtype))


def add_nonsymmetric(tag, batch, n, m, dtype):
    """Adds the functions that JAX's CPU backend computes."""
    square = dominant(*batch, n, n, dtype=dtype)
    add = functools.partial(add_case, is_exported=False)
    add("eigvals" + tag, absolute(jnp.linalg.eigvals), square)
    add("eig" + tag, absolute(jnp.linalg.eig), square, differentiable=False)
    for output in ("real", "complex"):
        add(f"schur_{output}{tag}", functools.partial(jsl.schur, output=output),
            dominant(n, n, dtype=dtype), differentiable=False)
    add("hessenberg" + tag, functools.partial(jsl.hessenberg, calc_q=True), square,
        differentiable=False)
    add("tridiagonal" + tag, jax.lax.linalg.tridiagonal, square, differentiable=False)
    add("qr_pivoting" + tag, lambda x: jsl.qr(x, mode="economic", pivoting=True),
        array(n, m, dtype=dtype), differentiable=False)
    add("roots" + tag, lambda x: jnp.abs(jnp.roots(x, strip_zeros=False)),
        array(n + 1, dtype=dtype))
    complex_square = square + 1j * array(*batch, n, n, dtype=dtype)
    add("eig_complex" + tag, absolute(jnp.linalg.eig), complex_square, differentiable=False)


jax.config.update("jax_enable_x64", True)
for dtype in (np.float32, np.float64):
    batch = tuple(int(size) for size in rng.integers(1, 4, int(rng.integers(0, 3))))
    n, m = (int(size) for size in rng.integers(1, 7, 2))
    tag = f"_{np.dtype(dtype).name}_{'x'.join(map(str, (*batch, n, m)))}"
    add_factorisations(tag, batch, n, m, dtype)
    add_systems(tag, batch, n, m, dtype)
    add_nonsymmetric(tag, batch, n, m, dtype)

if __name__ == "__main__":
    main(CASES)
