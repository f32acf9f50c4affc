"""The step of resnet_bench on JAX: its times and its peak memory as one JSON line."""
import argparse
import time

import common

args = argparse.ArgumentParser(description=__doc__)
args.add_argument("--steps", type=int, default=12)
args = args.parse_args()
common.use_devices(1)

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

BATCH, SIDE, WIDTH, BLOCKS, CLASSES = 128, 32, 16, 3, 10


def conv_norm(x, features, stride, train):
    x = nn.Conv(features, (3, 3), (stride, stride), padding=1, use_bias=False)(x)
    return nn.BatchNorm(use_running_average=not train, momentum=0.9)(x)


class ResNet(nn.Module):
    @nn.compact
    def __call__(self, x, train=True):
        x = nn.relu(conv_norm(x, WIDTH, 1, train))
        for stage in range(3):
            for block in range(BLOCKS):
                features, stride = WIDTH << stage, 2 if stage > 0 and block == 0 else 1
                y = nn.relu(conv_norm(x, features, stride, train))
                y = conv_norm(y, features, 1, train)
                more = features - x.shape[-1]
                if stride == 2:
                    channels = (more // 2, more - more // 2)
                    x = jnp.pad(x[:, ::2, ::2], ((0, 0), (0, 0), (0, 0), channels))
                x = nn.relu(y + x)
        return nn.Dense(CLASSES)(x.mean((1, 2)))


model = ResNet()
optimizer = optax.chain(optax.add_decayed_weights(5e-4), optax.sgd(0.1, 0.9, nesterov=True))


def step(state, batch):
    images, labels = batch
    params, statistics, moments = state

    def loss_of(params):
        logits, changed = model.apply({"params": params, "batch_stats": statistics}, images,
                                      mutable=["batch_stats"])
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
        return losses.mean(), changed["batch_stats"]

    (loss, statistics), grads = jax.value_and_grad(loss_of, has_aux=True)(params)
    updates, moments = optimizer.update(grads, moments, params)
    return (optax.apply_updates(params, updates), statistics, moments), loss


random = np.random.RandomState(0)
images = jnp.asarray(random.randn(BATCH, SIDE, SIDE, 3), jnp.float32)
labels = jnp.asarray(random.randint(0, CLASSES, BATCH))
variables = model.init(jax.random.key(0), images[:8])
params = variables["params"]
state = (params, variables["batch_stats"], optimizer.init(params))
start = time.perf_counter()
compiled = jax.jit(step, donate_argnums=(0,)).lower(state, (images, labels)).compile()
compile_s = time.perf_counter() - start
_, losses, seconds = common.timed_steps(compiled, state, [(images, labels)], args.steps,
                                        jax.block_until_ready)
common.report("resnet20", vars(args), compile_s, seconds, losses)
