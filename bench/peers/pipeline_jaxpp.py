"""The transformer of examples/pipeline as a pipeline on JaxPP; --jaxpp DIR is its source."""
import argparse
import sys
import time

import common

args = argparse.ArgumentParser()
args.add_argument("--jaxpp", required=True, help="a checkout of github.com/NVIDIA/jaxpp")
args.add_argument("--schedule", default="Interleaved1F1B")
args.add_argument("--stages", type=int, default=4)
args.add_argument("--groups", type=int, default=4)
args.add_argument("--fsdp", type=int, default=1)
args.add_argument("--microbatches", type=int, default=4)
args.add_argument("--batch", type=int, default=8)
args.add_argument("--seq", type=int, default=128)
args.add_argument("--width", type=int, default=256)
args.add_argument("--layers", type=int, default=8)
args.add_argument("--steps", type=int, default=6)
args = args.parse_args()
common.use_devices(args.groups * args.fsdp)
sys.path.insert(0, args.jaxpp + "/src")

import flax.linen as nn
import jax
import jax.numpy as jnp
import jaxpp.api as jaxpp
import numpy as np
import optax
from flax.training import train_state
from jax._src import dtypes
from jax.sharding import Mesh, PartitionSpec as P
from jaxpp import schedules
from jaxpp.array import MpmdArray
from transformer import Block, normal_batch

# JAX versions newer than those that JaxPP supports canonicalize every argument.
dtypes.canonicalize_value_handlers[MpmdArray] = lambda array: array


class Transformer(nn.Module):
    @nn.compact
    def __call__(self, x):
        for i in range(args.layers):
            x = Block(args.width, name=f"block_{i}")(x)
            if (i + 1) % (args.layers // args.stages) == 0:
                x = jaxpp.mark_stage_end(x)
        return x


mesh = Mesh(np.array(jax.devices()).reshape(args.groups, args.fsdp), ("stage", "fsdp"))
groups = jaxpp.MpmdMesh(mesh, "stage")
model = Transformer()
shape = (args.batch, args.seq, args.width)
xs, targets = normal_batch(shape)
params = model.init(jax.random.PRNGKey(0), xs)["params"]
state = train_state.TrainState.create(apply_fn=model.apply, params=params, tx=optax.adamw(1e-3))
make_schedule = getattr(jaxpp, args.schedule)
is_interleaved = issubclass(make_schedule, schedules.InterleavedBaseSchedule)
schedule = make_schedule(num_stages=args.stages,
                         **({"mpmd_dim": args.groups} if is_interleaved else {}))


def loss_fn(params, x, targets):
    x, targets = jax.lax.with_sharding_constraint((x, targets), P("fsdp"))
    return jnp.mean((model.apply({"params": params}, x) - targets) ** 2)


def step(state, xs, targets):
    split = lambda a: a.reshape(args.microbatches, -1, *a.shape[1:])
    loss, grads = jaxpp.treduce(
        lambda batch: jax.value_and_grad(loss_fn)(state.params, *batch),
        (split(xs), split(targets)), schedule=schedule, operation=jaxpp.Add)
    return state.apply_gradients(grads=grads), loss


def local(array):
    return array.first_mpmd_replica if isinstance(array, MpmdArray) else array


specs = jax.tree.map(lambda x: P("fsdp") if getattr(x, "ndim", 0) > 0 else P(), state)
start = time.perf_counter()
compiled = jaxpp.mpmd_jit_with_loop(step, in_specs=(specs, P("fsdp"), P("fsdp")),
                                    out_specs=(specs, P()), mpmd_mesh=groups
                                    ).compile(state, xs, targets)
compile_s = time.perf_counter() - start
losses, seconds = [], []
with mesh:
    for _ in range(args.steps):
        start = time.perf_counter()
        state, loss = compiled(state, xs, targets)
        jax.block_until_ready(jax.tree.map(local, (state.params, state.opt_state, loss)))
        seconds.append(time.perf_counter() - start)
        losses.append(float(local(loss)))
common.report("pipeline_transformer_stages", vars(args), compile_s, seconds, losses)
