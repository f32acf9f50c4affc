"""Lowerings of collectives for which JAX has only a lowering to XLA."""
import functools

import jax.numpy as jnp
from jax import lax
from jax._src.interpreters import mlir
from jax._src.lax import parallel

from jax_plugins.tessera import lowering


def _ragged_all_to_all(operand, output, starts, sizes, places, received, *, axis_name,
                       axis_index_groups):
    """Gathers the rows of all devices; each device then reads its own pieces. A device sends n
    pieces. Piece i has `sizes[i]` rows and goes to device i * devices / n of the group, to the
    rows from `places[i]` on."""
    del received  # the sizes of the pieces that the other devices send
    how = dict(axis_name=axis_name, axis_index_groups=axis_index_groups)
    rows = lax.all_gather(operand, **how)
    starts, sizes, places = (lax.all_to_all(x, split_axis=0, concat_axis=0, tiled=True, **how)
                             for x in (starts, sizes, places))
    row = jnp.arange(output.shape[0], dtype=starts.dtype)
    inside = (row >= places[:, None]) & (row < (places + sizes)[:, None])
    senders = jnp.arange(starts.shape[0]) // (starts.shape[0] // rows.shape[0])
    sender = jnp.sum(jnp.where(inside, senders[:, None], 0), 0)
    source = jnp.sum(jnp.where(inside, row + (starts - places)[:, None], 0), 0)
    is_sent = jnp.any(inside, 0).reshape(-1, *[1] * (output.ndim - 1))
    return [jnp.where(is_sent, rows[sender, source], output)]


def register():
    mlir.register_lowering(
        parallel.ragged_all_to_all_p,
        functools.partial(lowering.lowered, _ragged_all_to_all), platform="tessera")
