"""Writes golden/mlp_logical.json and golden/logical_rules.json from Flax itself.

The first file has numbers of the perceptron whose dimensions have logical names: outputs and sums
of parameters after initialisation and after one step, and the losses of five steps. The second file
has the specs that Flax makes from random logical names and rules.

Run in an environment with jax, flax and optax; the tests only read what it wrote.
"""
import json
import os
import pathlib
import random

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import flax
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from flax.training import train_state
from jax.experimental import mesh_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

FOLDER = pathlib.Path(__file__).parent / "golden"
SOURCE = f"JAX {jax.__version__}, Flax {flax.__version__}, Optax {optax.__version__}, CPU, f32"
BATCH, LAYERS, DEPTH, STEPS = 8, 4, 1024, 5
RULES = (("batch", "data"), ("hidden", "model"))
MESH = Mesh(mesh_utils.create_device_mesh((2, 4)), ("data", "model"))


class LogicalDotReluDot(nn.Module):
    depth: int

    @nn.compact
    def __call__(self, x):
        init = nn.initializers.xavier_normal()
        w1 = self.param("W1", nn.with_logical_partitioning(init, ("embed", "hidden")),
                        (x.shape[-1], self.depth))
        y = nn.with_logical_constraint(jax.nn.relu(jnp.dot(x, w1)), ("batch", "hidden"))
        w2 = self.param("W2", nn.with_logical_partitioning(init, ("hidden", "embed")),
                        (self.depth, x.shape[-1]))
        return nn.with_logical_constraint(jnp.dot(y, w2), ("batch", "embed")), None


class LogicalMLP(nn.Module):
    use_scan: bool

    @nn.compact
    def __call__(self, x):
        if self.use_scan:
            return nn.scan(LogicalDotReluDot, length=LAYERS, variable_axes={"params": 0},
                           split_rngs={"params": True},
                           metadata_params={nn.PARTITION_NAME: "layer"})(DEPTH)(x)[0]
        for _ in range(LAYERS):
            x, _ = LogicalDotReluDot(DEPTH)(x)
        return x


def output_of(y):
    y = np.asarray(y)
    return dict(sum=float(y.astype(np.float64).sum()), row0_first4=y[0, :4].tolist())


def sums_of(params):
    sums = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(nn.unbox(params))[0]:
        values = np.asarray(leaf, np.float64)
        sums["/".join(key.key for key in path)] = [float(values.sum()), float(abs(values).sum())]
    return sums


def numbers_of(use_scan):
    model, tx = LogicalMLP(use_scan), optax.adam(1e-3)

    def init(key, x):
        return train_state.TrainState.create(apply_fn=model.apply, tx=tx,
                                             params=model.init(key, x)["params"])

    def step(state, x):
        loss, grads = jax.value_and_grad(
            lambda params: model.apply({"params": params}, x).sum())(state.params)
        return state.apply_gradients(grads=grads), loss

    x = jnp.ones((BATCH, DEPTH))
    with jax.set_mesh(MESH), nn.logical_axis_rules(RULES):
        specs = nn.get_partition_spec(jax.eval_shape(init, jax.random.key(0), x))
        shardings = jax.tree.map(lambda spec: NamedSharding(MESH, spec),
                                 nn.logical_to_mesh(specs, RULES))
        state = jax.jit(init, out_shardings=shardings)(jax.random.key(0), x)
        apply = jax.jit(lambda state, x: state.apply_fn({"params": state.params}, x))
        jitted_step = jax.jit(step)
        found = dict(params_after_init=sums_of(state.params),
                     y_after_init=output_of(apply(state, x)))
        losses = []
        for i in range(STEPS):
            state, loss = jitted_step(state, x)
            losses.append(float(loss))
            if i == 0:
                found.update(params_after_step=sums_of(state.params),
                             y_after_step=output_of(apply(state, x)))
        return dict(found, losses=losses)


NAMES = ("batch", "embed", "hidden", "heads", "layer", "vocab")
AXES = ("data", "model", "stage")


def random_axes(draw):
    kind = draw.random()
    if kind < 0.2:
        return None
    return draw.choice(AXES) if kind < 0.85 else draw.sample(AXES, 2)


def rule_case(draw):
    names = draw.sample(NAMES, draw.randint(0, 4))
    names = [None if draw.random() < 0.15 else name for name in names]
    if names and draw.random() < 0.1:
        names.append(draw.choice(names))
    rules = [(draw.choice(NAMES), random_axes(draw)) for _ in range(draw.randint(0, 8))]
    case = dict(names=names, rules=rules)
    try:
        spec = nn.logical_to_mesh_axes(
            tuple(names), tuple((n, tuple(a) if isinstance(a, list) else a) for n, a in rules))
        return dict(case, spec=list(spec))
    except ValueError:
        return dict(case, error=True)


def write(name, **content):
    (FOLDER / name).write_text(json.dumps(content) + "\n")


if __name__ == "__main__":
    draw = random.Random(0)
    write("logical_rules.json", source=f"Flax {flax.__version__}",
          cases=[rule_case(draw) for _ in range(400)])
    write("mlp_logical.json", source=SOURCE, scan=numbers_of(True), loop=numbers_of(False))
