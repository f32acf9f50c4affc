"""A GPT on JAX, the same model as `tessera train lm --causal`: step times and the peak memory of
the device as one JSON object."""
import argparse
import os
import time

import common

args = argparse.ArgumentParser()
for name, value in dict(vocab=50257, seq=1024, width=768, heads=12, layers=12, batch=8,
                        steps=8).items():
    args.add_argument(f"--{name}", type=int, default=value)
args.add_argument("--bf16", action="store_true")
args = args.parse_args()
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

DTYPE = jnp.bfloat16 if args.bf16 else jnp.float32


class Block(nn.Module):
    @nn.compact
    def __call__(self, x):
        y = nn.LayerNorm(dtype=DTYPE)(x)
        heads = (args.heads, args.width // args.heads)
        q, k, v = (nn.DenseGeneral(heads, use_bias=False, dtype=DTYPE)(y) for _ in range(3))
        y = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        x = x + nn.DenseGeneral(args.width, axis=(-2, -1), use_bias=False, dtype=DTYPE)(y)
        y = nn.gelu(nn.Dense(4 * args.width, dtype=DTYPE)(nn.LayerNorm(dtype=DTYPE)(x)))
        return x + nn.Dense(args.width, dtype=DTYPE)(y)


class Gpt(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        positions = self.param("pos_emb", nn.initializers.normal(0.02), (args.seq, args.width))
        x = nn.Embed(args.vocab, args.width, dtype=DTYPE)(tokens) + positions.astype(DTYPE)
        for _ in range(args.layers):
            x = Block()(x)
        x = nn.LayerNorm(dtype=DTYPE)(x)
        return nn.Dense(args.vocab, use_bias=False, dtype=DTYPE)(x)


model, optimizer = Gpt(), optax.adamw(3e-4)


def step(state, tokens):
    params, opt = state

    def loss_of(params):
        logits = model.apply(params, tokens)[:, :-1].astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    loss, grads = jax.value_and_grad(loss_of)(params)
    updates, opt = optimizer.update(grads, opt, params)
    return (optax.apply_updates(params, updates), opt), loss


tokens = jnp.asarray(np.random.RandomState(0).randint(0, args.vocab, (args.batch, args.seq)),
                     jnp.int32)
params = jax.jit(model.init)(jax.random.PRNGKey(0), tokens[:1])
state = (params, optimizer.init(params))
start = time.perf_counter()
compiled = jax.jit(step, donate_argnums=(0,)).lower(state, tokens).compile()
compile_s = time.perf_counter() - start
state, losses, seconds = common.timed_steps(compiled, state, [tokens], args.steps,
                                            jax.block_until_ready)
common.report("gpt", vars(args), compile_s, seconds, losses)
