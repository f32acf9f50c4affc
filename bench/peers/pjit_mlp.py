"""The perceptron of examples/mlp on JAX, on a 2x4 mesh: a scan over layers, or with --loop a loop.
"""
import argparse
import functools
import time

import common

args = argparse.ArgumentParser()
args.add_argument("--batch", type=int, default=8)
args.add_argument("--layers", type=int, default=4)
args.add_argument("--depth", type=int, default=1024)
args.add_argument("--steps", type=int, default=30)
args.add_argument("--loop", action="store_true", help="a for-loop over the layers, not nn.scan")
args.add_argument("--shardings", action="store_true", help="print those that XLA infers instead")
args = args.parse_args()
common.use_devices(8)

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from flax.training import train_state
from jax.experimental import mesh_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

mesh = Mesh(mesh_utils.create_device_mesh((2, 4)), ("data", "model"))
constrain = lambda x, *spec: jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(*spec)))


class DotReluDot(nn.Module):
    depth: int

    @nn.compact
    def __call__(self, x):
        init = nn.initializers.xavier_normal()
        w1 = self.param("W1", nn.with_partitioning(init, (None, "model")),
                        (x.shape[-1], self.depth))
        y = constrain(jax.nn.relu(x @ w1), "data", "model")
        w2 = self.param("W2", nn.with_partitioning(init, ("model", None)),
                        (self.depth, x.shape[-1]))
        return constrain(y @ w2, "data", None), None


class MLP(nn.Module):
    @nn.compact
    def __call__(self, x):
        if args.loop:
            for _ in range(args.layers):
                x, _ = DotReluDot(args.depth)(x)
            return x
        return nn.scan(DotReluDot, length=args.layers, variable_axes={"params": 0},
                       split_rngs={"params": True},
                       metadata_params={nn.PARTITION_NAME: None})(args.depth)(x)[0]


model, tx = MLP(), optax.adam(1e-3)
x = jnp.ones((args.batch, args.depth))


def init(key, x):
    return train_state.TrainState.create(apply_fn=model.apply,
                                         params=model.init(key, x)["params"], tx=tx)


def step(state, x):
    loss, grads = jax.value_and_grad(lambda p: model.apply({"params": p}, x).sum())(state.params)
    return state.apply_gradients(grads=grads), loss


with jax.set_mesh(mesh):
    specs = nn.get_partition_spec(jax.eval_shape(init, jax.random.key(0), x))
    shardings = jax.tree.map(lambda s: NamedSharding(mesh, s), specs)
    data = NamedSharding(mesh, P("data", None))
    start = time.perf_counter()
    state = jax.jit(init, out_shardings=shardings)(jax.random.key(0), x)
    x = jax.device_put(x, data)
    if args.shardings:
        form = "loop" if args.loop else "scan"
        apply = lambda params, x: model.apply({"params": params}, x)
        common.print_shardings(f"mlp init, {form}", mesh,
                               jax.jit(init).lower(jax.random.key(0), jnp.ones(x.shape)))
        common.print_shardings(f"mlp step, {form}", mesh, jax.jit(step).lower(state, x))
        common.print_shardings(f"mlp apply, {form}", mesh, jax.jit(apply).lower(state.params, x))
        raise SystemExit
    compiled = jax.jit(step, in_shardings=(shardings, data),
                       out_shardings=(shardings, None)).lower(state, x).compile()
    compile_s = time.perf_counter() - start
    state, losses, seconds = common.timed_steps(compiled, state, [x], args.steps,
                                                jax.block_until_ready)
common.report("pjit_mlp", vars(args), compile_s, seconds, losses, specs=str(specs.params))
