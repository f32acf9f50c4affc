"""Factorisations for which JAX has no form that suits every platform."""
import functools

import jax
import jax.numpy as jnp
from jax._src.interpreters import mlir
from jax._src.lax import linalg
from jax._src.lib.mlir import ir
from jax.core import ShapedArray

from jax_plugins.tessera import callbacks, complex_linalg


def _call(name, operand, results):
    types = [ir.RankedTensorType.get(aval.shape, mlir.dtype_to_ir_type(aval.dtype))
             for aval in results]
    return mlir.custom_call(name, operands=[operand], result_types=types).results


def _has_complex(ctx):
    return jnp.issubdtype(ctx.avals_in[0].dtype, jnp.complexfloating)


def _lowered(function, ctx, *operands, **options):
    """The lowering of a function of one matrix and vectors, for all matrices of a batch."""
    for _ in ctx.avals_in[0].shape[:-2]:
        function = jax.vmap(function)
    # The setting of the program is not that of this code.
    with jax.numpy_dtype_promotion("standard"):
        return mlir.lower_fun(function, multiple_results=True)(ctx, *operands, **options)


def _lu(ctx, a):
    if _has_complex(ctx):
        return _lowered(linalg._lu_blocked, ctx, a)
    return _call("tessera.lu", a, ctx.avals_out)


def _geqrf(ctx, a):
    if _has_complex(ctx):
        return _lowered(complex_linalg.geqrf, ctx, a)
    return linalg._geqrf_lowering_rule(ctx, a)


def _householder_product(ctx, a, taus):
    if _has_complex(ctx):
        return _lowered(complex_linalg.householder_product, ctx, a, taus)
    return linalg._householder_product_lowering(ctx, a, taus)


def _only_whole(subset_by_index, count):
    if subset_by_index is None or tuple(subset_by_index) == (0, count):
        return
    raise NotImplementedError(
        "tessera: a part of the eigenvalues or singular values cannot be computed alone\n"
        f"  found:  subset_by_index={tuple(subset_by_index)}\n"
        f"  wanted: all {count}\n"
        "  cure:   compute all and slice the result")


def _eigh(ctx, a, *, lower, sort_eigenvalues, subset_by_index, **_):
    del sort_eigenvalues  # always sorted
    vectors, values = ctx.avals_out
    _only_whole(subset_by_index, vectors.shape[-1])
    if not lower:
        flip = mlir.lower_fun(lambda x: jnp.swapaxes(x, -1, -2), multiple_results=False)
        a, = flip(ctx.replace(avals_out=ctx.avals_in), a)
    if _has_complex(ctx):
        return _lowered(functools.partial(complex_linalg.eigh, lower=lower), ctx, a)
    w, v = _call("tessera.eigh", a, [values, vectors])
    return v, w


def _completed(q):
    """The orthonormal columns q [.., n, k] and n - k more: [.., n, n]."""
    return jnp.concatenate([q, jnp.linalg.qr(q, "complete")[0][..., q.shape[-1]:]], -1)


def _svd(ctx, a, *, full_matrices, compute_uv, subset_by_index, **_):
    aval, = ctx.avals_in
    *batch, rows, cols = aval.shape
    k = min(rows, cols)
    _only_whole(subset_by_index, k)
    thin = [ShapedArray((*batch, *sizes), aval.dtype)
            for sizes in ((rows, k), (k,), (k, cols))]
    if _has_complex(ctx):
        thin[1] = ctx.avals_out[0]
        u, s, vt = _lowered(complex_linalg.svd, ctx.replace(avals_out=thin), a)
    else:
        u, s, vt = _call("tessera.svd", a, thin)
    if not compute_uv:
        return [s]
    if full_matrices and rows > k:
        full = ctx.replace(avals_in=[thin[0]], avals_out=[ctx.avals_out[1]])
        u, = mlir.lower_fun(_completed, multiple_results=False)(full, u)
    if full_matrices and cols > k:
        full = ctx.replace(avals_in=[thin[2]], avals_out=[ctx.avals_out[2]])
        vt, = mlir.lower_fun(
            lambda x: jnp.swapaxes(_completed(jnp.swapaxes(x, -1, -2)), -1, -2),
            multiple_results=False)(full, vt)
    return [s, u, vt]


def _on_cpu(primitive):
    """The lowering to a call of JAX's CPU backend, which has LAPACK."""
    def rule(ctx, *operands, **options):
        if callbacks.cpu_device() is None:
            raise NotImplementedError(
                f"tessera: {primitive} is computed by JAX's CPU backend, which is left out\n"
                f"  found:  JAX_PLATFORMS={jax.config.jax_platforms}\n"
                "  wanted: JAX_PLATFORMS=tessera,cpu\n"
                "  cure:   set that before JAX starts")
        return callbacks.emit_call(ctx, f"jax.lax.linalg.{primitive}",
                                   functools.partial(primitive.bind, **options), operands)

    return rule


def register():
    for primitive in (linalg.eig_p, linalg.schur_p, linalg.hessenberg_p, linalg.tridiagonal_p,
                      linalg.geqp3_p):
        mlir.register_lowering(primitive, _on_cpu(primitive), platform="tessera")
    for primitive, rule in ((linalg.lu_p, _lu), (linalg.eigh_p, _eigh), (linalg.svd_p, _svd),
                            (linalg.geqrf_p, _geqrf),
                            (linalg.householder_product_p, _householder_product)):
        mlir.register_lowering(primitive, rule, platform="tessera")
