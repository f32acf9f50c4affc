"""The transformer of examples/pipeline on JAX: gradients accumulated over microbatches by scan."""
import argparse
import time
from functools import partial

import common

args = argparse.ArgumentParser()
args.add_argument("--devices", type=int, default=4)
args.add_argument("--microbatches", type=int, default=4)
args.add_argument("--batch", type=int, default=8)
args.add_argument("--seq", type=int, default=128)
args.add_argument("--width", type=int, default=256)
args.add_argument("--layers", type=int, default=8)
args.add_argument("--steps", type=int, default=6)
args.add_argument("--inputs", choices=["ones", "normal"], default="normal",
                  help="normal: inputs, then targets, from RandomState(0).standard_normal")
args = args.parse_args()
common.use_devices(args.devices)

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import train_state
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from transformer import Block, normal_batch


class Transformer(nn.Module):
    @nn.compact
    def __call__(self, x):
        for i in range(args.layers):
            x = Block(args.width, name=f"block_{i}")(x)
        return x


mesh = Mesh(np.array(jax.devices())[:args.devices], ("fsdp",))
model = Transformer()
shape = (args.batch, args.seq, args.width)
if args.inputs == "ones":
    xs = targets = jnp.ones(shape)
else:
    xs, targets = normal_batch(shape)
params = model.init(jax.random.PRNGKey(0), xs)["params"]
state = train_state.TrainState.create(apply_fn=model.apply, params=params, tx=optax.adamw(1e-3))


def loss_fn(params, x, targets):
    x, targets = jax.lax.with_sharding_constraint((x, targets), P("fsdp"))
    return jnp.mean((model.apply({"params": params}, x) - targets) ** 2)


def step(state, batch):
    xs, targets = batch
    split = lambda a: a.reshape(args.microbatches, -1, *a.shape[1:])

    def body(total, inputs):
        return jax.tree.map(jnp.add, total, jax.value_and_grad(loss_fn)(state.params, *inputs)), ()

    zeros = jax.tree.map(jnp.zeros_like, (0.0, state.params))
    (loss, grads), _ = jax.lax.scan(body, zeros, (split(xs), split(targets)))
    return state.apply_gradients(grads=grads), loss


def divisible(x):
    return getattr(x, "ndim", 0) > 0 and x.shape[0] % args.devices == 0


shardings = jax.tree.map(lambda x: NamedSharding(mesh, P("fsdp") if divisible(x) else P()), state)
with jax.set_mesh(mesh):
    state = jax.device_put(state, shardings)
    batch = jax.device_put((xs, targets), NamedSharding(mesh, P("fsdp")))
    start = time.perf_counter()
    compiled = jax.jit(step, donate_argnums=(0,),
                       out_shardings=(shardings, None)).lower(state, batch).compile()
    compile_s = time.perf_counter() - start
    state, losses, seconds = common.timed_steps(compiled, state, [batch], args.steps,
                                                jax.block_until_ready)
common.report("pipeline_transformer_fsdp", vars(args), compile_s, seconds, losses)
