"""Lowerings of factorisations for which JAX has no lowering that suits every platform."""
import functools

import jax
import jax.numpy as jnp
from jax._src import core
from jax._src.export import _export as export
from jax._src.interpreters import mlir
from jax._src.lax import linalg
from jax._src.lib.mlir import ir
from jax.core import ShapedArray

from jax_plugins.tessera import callbacks, complex_linalg, lowering


def _call(ctx, name, operand, results):
    # The size of a symbolic dimension is known only when the exported program is called.
    sizes = [[size if isinstance(size, int) else ir.ShapedType.get_dynamic_size()
              for size in aval.shape] for aval in results]
    types = [ir.RankedTensorType.get(each, mlir.dtype_to_ir_type(aval.dtype))
             for each, aval in zip(sizes, results)]
    shapes = None
    if not all(core.is_constant_shape(aval.shape) for aval in results):
        shapes = [mlir.eval_dynamic_shape_as_tensor(ctx, aval.shape) for aval in results]
    return mlir.custom_call(name, operands=[operand], result_types=types,
                            result_shapes=shapes).results


def _has_complex(ctx):
    return jnp.issubdtype(ctx.avals_in[0].dtype, jnp.complexfloating)


def _lowered_as_is(function, ctx, *operands):
    """The lowering of a function that does not handle explicit shardings."""
    plain = [ShapedArray(aval.shape, aval.dtype) for aval in ctx.avals_in]
    return lowering.lowered(function, ctx.replace(avals_in=plain), *operands)


def _lowered(function, ctx, *operands):
    """Lowers a function of one matrix, and perhaps vectors, for all matrices of a batch."""
    for _ in ctx.avals_in[0].shape[:-2]:
        function = jax.vmap(function)
    return _lowered_as_is(function, ctx, *operands)


def _lu(ctx, a):
    if _has_complex(ctx):
        return _lowered(linalg._lu_blocked, ctx, a)
    return _call(ctx, "tessera.lu", a, ctx.avals_out)


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
        "tessera: a subset of the eigenvalues or singular values cannot be computed on its own\n"
        f"  found:  subset_by_index={tuple(subset_by_index)}\n"
        f"  wanted: all {count}\n"
        "  cure:   compute all and slice the result")


def _eigh(ctx, a, *, lower, sort_eigenvalues, subset_by_index, **_):
    del sort_eigenvalues  # always sorted
    vectors, values = ctx.avals_out
    _only_whole(subset_by_index, vectors.shape[-1])
    if not lower:
        a, = _lowered_as_is(lambda x: [jnp.swapaxes(x, -1, -2)], ctx, a)
    if _has_complex(ctx):
        return _lowered(functools.partial(complex_linalg.eigh, lower=lower), ctx, a)
    w, v = _call(ctx, "tessera.eigh", a, [values, vectors])
    return v, w


def _completed(q):
    """Adds n - k orthonormal columns to the orthonormal columns q [.., n, k]: [.., n, n]."""
    return jnp.concatenate([q, jnp.linalg.qr(q, "complete")[0][..., q.shape[-1]:]], -1)


def _svd(ctx, a, *, full_matrices, compute_uv, subset_by_index, **_):
    aval, = ctx.avals_in
    *batch, rows, cols = aval.shape
    k = core.min_dim(rows, cols)
    _only_whole(subset_by_index, k)
    thin = [ShapedArray((*batch, *sizes), aval.dtype)
            for sizes in ((rows, k), (k,), (k, cols))]
    if _has_complex(ctx):
        u, s, vt = _lowered(complex_linalg.svd, ctx, a)
    else:
        u, s, vt = _call(ctx, "tessera.svd", a, thin)
    if not compute_uv:
        return [s]
    if full_matrices and not core.definitely_equal(rows, k):
        u, = _lowered_as_is(lambda x: [_completed(x)], ctx.replace(avals_in=[thin[0]]), u)
    if full_matrices and not core.definitely_equal(cols, k):
        vt, = _lowered_as_is(
            lambda x: [jnp.swapaxes(_completed(jnp.swapaxes(x, -1, -2)), -1, -2)],
            ctx.replace(avals_in=[thin[2]]), vt)
    return [s, u, vt]


def _on_cpu(primitive):
    """A lowering that calls JAX's CPU backend, which has LAPACK."""
    def rule(ctx, *operands, **options):
        if callbacks.cpu_device() is None:
            raise NotImplementedError(
                f"tessera: {primitive} is computed by JAX's CPU backend, which JAX_PLATFORMS "
                "leaves out\n"
                f"  found:  JAX_PLATFORMS={jax.config.jax_platforms}\n"
                "  wanted: JAX_PLATFORMS=tessera,cpu\n"
                "  cure:   set it before JAX starts")
        return callbacks.emit_call(ctx, f"jax.lax.linalg.{primitive}",
                                   functools.partial(primitive.bind, **options), operands)

    return rule


def _allow_export():
    """Allows programs with these calls to be exported: the names and results of the calls do not
    change."""
    known = getattr(export, "_CUSTOM_CALL_TARGETS_GUARANTEED_STABLE", None)
    if isinstance(known, set):
        known.update(("tessera.eigh", "tessera.lu", "tessera.svd"))


def register():
    _allow_export()
    for primitive in (linalg.eig_p, linalg.schur_p, linalg.hessenberg_p, linalg.tridiagonal_p,
                      linalg.geqp3_p):
        mlir.register_lowering(primitive, _on_cpu(primitive), platform="tessera")
    for primitive, rule in ((linalg.lu_p, _lu), (linalg.eigh_p, _eigh), (linalg.svd_p, _svd),
                            (linalg.geqrf_p, _geqrf),
                            (linalg.householder_product_p, _householder_product)):
        mlir.register_lowering(primitive, rule, platform="tessera")
