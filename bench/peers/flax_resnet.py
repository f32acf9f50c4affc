"""ResNet-50 in Flax, with random images: the times of its steps as one JSON line."""
import argparse
import time

import common

args = argparse.ArgumentParser(description=__doc__)
args.add_argument("--devices", type=int, default=8)
args.add_argument("--batch", type=int, default=16)
args.add_argument("--side", type=int, default=112, help="of images")
args.add_argument("--steps", type=int, default=8)
args = args.parse_args()
common.use_devices(args.devices)

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from jax.sharding import NamedSharding, PartitionSpec as P

CLASSES = 1000
Conv = partial(nn.Conv, use_bias=False)
Norm = partial(nn.BatchNorm, use_running_average=False, momentum=0.9)


class Bottleneck(nn.Module):
    width: int
    stride: int

    @nn.compact
    def __call__(self, x):
        strides = (self.stride, self.stride)
        y = nn.relu(Norm()(Conv(self.width, (1, 1))(x)))
        y = nn.relu(Norm()(Conv(self.width, (3, 3), strides)(y)))
        y = Norm(scale_init=nn.initializers.zeros)(Conv(4 * self.width, (1, 1))(y))
        if x.shape != y.shape:
            x = Norm()(Conv(4 * self.width, (1, 1), strides)(x))
        return nn.relu(x + y)


class ResNet50(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(Norm()(Conv(64, (7, 7), (2, 2), padding=3)(x)))
        x = nn.max_pool(x, (3, 3), (2, 2), padding="SAME")
        for stage, blocks in enumerate((3, 4, 6, 3)):
            for block in range(blocks):
                x = Bottleneck(64 << stage, 2 if stage > 0 and block == 0 else 1)(x)
        return nn.Dense(CLASSES)(x.mean((1, 2)))


model = ResNet50()
optimizer = optax.sgd(0.1, 0.9, nesterov=True)


def step(state, batch):
    images, labels = batch
    params, statistics, moments = state

    def loss_of(params):
        logits, changed = model.apply({"params": params, "batch_stats": statistics}, images,
                                      mutable=["batch_stats"])
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
        decay = sum((x**2).sum() for x in jax.tree.leaves(params) if x.ndim > 1)
        return losses.mean() + 5e-5 * decay, changed["batch_stats"]

    (loss, statistics), grads = jax.value_and_grad(loss_of, has_aux=True)(params)
    updates, moments = optimizer.update(grads, moments, params)
    return (optax.apply_updates(params, updates), statistics, moments), loss


mesh = jax.make_mesh((args.devices,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
replicated, split = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
random = np.random.RandomState(0)
images = jnp.asarray(random.randn(args.batch, args.side, args.side, 3), jnp.float32)
labels = jnp.asarray(random.randint(0, CLASSES, args.batch))
batch = jax.device_put((images, labels), split)
variables = jax.jit(model.init)(jax.random.key(0), images[:1])
params = variables["params"]
state = (params, variables["batch_stats"], optimizer.init(params))
state = jax.device_put(state, replicated)
start = time.perf_counter()
compiled = jax.jit(step, donate_argnums=0, out_shardings=(replicated, replicated)).lower(
    state, batch).compile()
compile_s = time.perf_counter() - start
_, losses, seconds = common.timed_steps(compiled, state, [batch], args.steps,
                                        jax.block_until_ready)
common.report("resnet50", vars(args), compile_s, seconds, losses)
