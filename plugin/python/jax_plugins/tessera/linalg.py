"""Factorisations for which JAX has no form that suits every platform."""
import jax.numpy as jnp
from jax._src.interpreters import mlir
from jax._src.lax import linalg
from jax._src.lib.mlir import ir
from jax.core import ShapedArray


def _call(name, operand, results):
    types = [ir.RankedTensorType.get(aval.shape, mlir.dtype_to_ir_type(aval.dtype))
             for aval in results]
    return mlir.custom_call(name, operands=[operand], result_types=types).results


def _lu(ctx, a):
    return _call("tessera.lu", a, ctx.avals_out)


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


def register():
    for primitive, rule in ((linalg.lu_p, _lu), (linalg.eigh_p, _eigh), (linalg.svd_p, _svd)):
        mlir.register_lowering(primitive, rule, platform="tessera")
