"""A causal transformer of Flax's layers with dropout, whose padding is masked, and FSDP: the times
of its steps as one JSON line."""
import argparse
import time

import common

args = argparse.ArgumentParser(description=__doc__)
args.add_argument("--devices", type=int, default=8)
args.add_argument("--batch", type=int, default=16)
args.add_argument("--length", type=int, default=128)
args.add_argument("--layers", type=int, default=6)
args.add_argument("--steps", type=int, default=8)
args = args.parse_args()
common.use_devices(args.devices)

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from flax.training.train_state import TrainState
from jax.sharding import NamedSharding, PartitionSpec as P

VOCABULARY, WIDTH, HIDDEN, HEADS, DROPOUT = 8192, 512, 2048, 8, 0.1


class Block(nn.Module):
    @nn.compact
    def __call__(self, x, mask):
        y = nn.LayerNorm()(x)
        y = nn.MultiHeadDotProductAttention(num_heads=HEADS, dropout_rate=DROPOUT,
                                            deterministic=False)(y, y, mask=mask)
        x = x + nn.Dropout(DROPOUT, deterministic=False)(y)
        y = nn.gelu(nn.Dense(HIDDEN)(nn.LayerNorm()(x)))
        y = nn.Dense(WIDTH)(nn.Dropout(DROPOUT, deterministic=False)(y))
        return x + nn.Dropout(DROPOUT, deterministic=False)(y)


class Transformer(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        is_token = tokens > 0
        mask = nn.combine_masks(nn.make_causal_mask(tokens),
                                nn.make_attention_mask(is_token, is_token))
        embed = nn.Embed(VOCABULARY, WIDTH)
        positions = self.param("positions", nn.initializers.normal(0.02), (args.length, WIDTH))
        x = nn.Dropout(DROPOUT, deterministic=False)(embed(tokens) + positions)
        for _ in range(args.layers):
            x = Block()(x, mask)
        return embed.attend(nn.LayerNorm()(x))


model = Transformer()


def step(state, tokens, key):
    def loss_of(params):
        logits = model.apply({"params": params}, tokens[:, :-1],
                             rngs={"dropout": jax.random.fold_in(key, state.step)})
        targets = tokens[:, 1:]
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
        weights = targets > 0
        return (losses * weights).sum() / weights.sum()

    loss, grads = jax.value_and_grad(loss_of)(state.params)
    return state.apply_gradients(grads=grads), loss


def sharding_of(leaf):
    """The largest dimension of the array over all devices."""
    spec = [None] * leaf.ndim
    if leaf.ndim and max(leaf.shape) % args.devices == 0:
        spec[int(np.argmax(leaf.shape))] = "data"
    return NamedSharding(mesh, P(*spec))


mesh = jax.make_mesh((args.devices,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
random = np.random.RandomState(0)
tokens = random.randint(1, VOCABULARY, (args.batch, args.length + 1))
lengths = random.randint(args.length // 2, args.length + 2, (args.batch, 1))
tokens = np.where(np.arange(args.length + 1) < lengths, tokens, 0).astype(np.int32)
tokens = jax.device_put(tokens, NamedSharding(mesh, P("data")))
keys = {"params": jax.random.key(0), "dropout": jax.random.key(1)}


def init():
    params = model.init(keys, jnp.ones((1, args.length), jnp.int32))["params"]
    return TrainState.create(apply_fn=model.apply, params=params, tx=optax.adamw(1e-3))


shardings = jax.tree.map(sharding_of, jax.eval_shape(init))
state = jax.jit(init, out_shardings=shardings)()
start = time.perf_counter()
compiled = jax.jit(step, donate_argnums=0,
                   out_shardings=(shardings, NamedSharding(mesh, P()))).lower(
                       state, tokens, keys["dropout"]).compile()
compile_s = time.perf_counter() - start
run = lambda state, tokens: compiled(state, tokens, keys["dropout"])
_, losses, seconds = common.timed_steps(run, state, [tokens], args.steps, jax.block_until_ready)
common.report("transformer", vars(args), compile_s, seconds, losses)
