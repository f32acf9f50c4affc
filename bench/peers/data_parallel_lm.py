"""The language model of examples/lm on JAX: data parallel, with replicated or FSDP parameters."""
import argparse
import time

import common

args = argparse.ArgumentParser()
args.add_argument("--devices", type=int, default=8)
args.add_argument("--params", choices=["replicated", "fsdp"], default="replicated")
args.add_argument("--steps", type=int, default=50)
args.add_argument("--batch", type=int, default=32)
args.add_argument("--dump", help="write the initial parameters and some gradients to this .npz")
args.add_argument("--shardings", action="store_true", help="print those that XLA infers instead")
args = args.parse_args()
common.use_devices(args.devices)

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from flax.training.train_state import TrainState
from jax import lax, random
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

VOCAB, SEQ, D_MODEL, HEADS, LAYERS, D_FF = 512, 64, 256, 8, 4, 1024


def positions(length, width):
    pos = jnp.arange(length)[:, None]
    freq = jnp.exp(-(jnp.log(10000.0) / width) * jnp.arange(0, width, 2)[None, :])
    table = jnp.zeros((length, width), jnp.float32)
    return table.at[:, 0::2].set(jnp.sin(pos * freq)).at[:, 1::2].set(jnp.cos(pos * freq))


class Block(nn.Module):
    @nn.compact
    def __call__(self, x):
        y = lax.with_sharding_constraint(nn.LayerNorm()(x), P("data", None))
        x = x + nn.SelfAttention(num_heads=HEADS, qkv_features=D_MODEL, use_bias=False,
                                 deterministic=True)(y)
        y = nn.gelu(nn.Dense(D_FF)(nn.LayerNorm()(x)))
        return x + nn.Dense(D_MODEL)(y)


class TinyTransformerLM(nn.Module):
    def setup(self):
        self.tok_emb = nn.Embed(VOCAB, D_MODEL)
        self.pos_emb = self.param("pos_emb", lambda key: positions(SEQ, D_MODEL))
        self.blocks = [Block() for _ in range(LAYERS)]
        self.ln_f = nn.LayerNorm()
        self.head = nn.Dense(VOCAB, use_bias=False)

    def __call__(self, tokens):
        x = self.tok_emb(tokens) + self.pos_emb[None, :tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln_f(x))


mesh = Mesh(np.array(jax.devices()), ("data",))
model = TinyTransformerLM()


def loss_fn(params, tokens):
    logits = model.apply({"params": params}, tokens)[:, :-1]
    onehot = jax.nn.one_hot(tokens[:, 1:], VOCAB)
    return -(onehot * jax.nn.log_softmax(logits)).sum(-1).mean()


def step(state, tokens):
    tokens = lax.with_sharding_constraint(tokens, P("data", None))
    loss, grads = jax.value_and_grad(loss_fn)(state.params, tokens)
    return state.apply_gradients(grads=grads), loss


def place(x):
    spec = [None] * x.ndim
    if args.params == "fsdp" and x.ndim:
        spec[int(np.argmax(x.shape))] = "data"
    return jax.device_put(x, NamedSharding(mesh, P(*spec)))


with jax.set_mesh(mesh):
    params = model.init(random.PRNGKey(42), jnp.zeros((8, SEQ), jnp.int32))["params"]
    tx = optax.adamw(3e-4)
    state = TrainState(step=0, apply_fn=model.apply, params=params, tx=tx,
                       opt_state=tx.init(params))
    if args.dump:
        flat = {jax.tree_util.keystr(k, simple=True, separator="/"): np.asarray(v)
                for k, v in jax.tree_util.tree_flatten_with_path(params)[0]}
        np.savez(args.dump, **flat)
    state = state.replace(params=jax.tree.map(place, params),
                          opt_state=jax.tree.map(place, state.opt_state))
    data = np.random.RandomState(1234).randint(0, VOCAB, size=(8192, SEQ), dtype=np.int32)
    batches = [jax.device_put(data[i:i + args.batch], NamedSharding(mesh, P("data", None)))
               for i in range(0, len(data) - args.batch + 1, args.batch)]
    start = time.perf_counter()
    lowered = jax.jit(step, donate_argnums=(0,)).lower(state, batches[0])
    if args.shardings:
        common.print_shardings(f"lm step, {args.params}", mesh, lowered)
        raise SystemExit
    compiled = lowered.compile()
    compile_s = time.perf_counter() - start
    state, losses, seconds = common.timed_steps(compiled, state, batches, args.steps,
                                                jax.block_until_ready)
common.report("data_parallel_lm", vars(args), compile_s, seconds, losses)
