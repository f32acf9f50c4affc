"""Lowers operations by tracing JAX functions."""
import jax
from jax._src.interpreters import mlir


def lowered(function, ctx, *operands, **options):
    """The lowering of a function that returns a list."""
    # The promotion settings of the user's program must not apply to this code.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        return mlir.lower_fun(function, multiple_results=True)(ctx, *operands, **options)
