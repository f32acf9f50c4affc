"""Shared by the peers of examples/pipeline: the transformer block, and the inputs and targets."""
import flax.linen as nn
import jax.numpy as jnp
import numpy as np


class Block(nn.Module):
    width: int

    @nn.remat
    @nn.jit
    @nn.compact
    def __call__(self, x):
        attention = nn.MultiHeadDotProductAttention(num_heads=8, qkv_features=self.width // 8)
        x = nn.LayerNorm()(x + attention(x))
        hidden = nn.gelu(nn.Dense(4 * self.width)(x))
        y = nn.Dense(x.shape[-1])(hidden)
        return nn.LayerNorm()(x + y)


def normal_batch(shape):
    """Inputs, then targets, from RandomState(0)."""
    random = np.random.RandomState(0)
    return tuple(jnp.asarray(random.standard_normal(shape), jnp.float32) for _ in range(2))
