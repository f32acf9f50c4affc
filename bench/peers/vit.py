"""The vision transformer of examples/vit on JAX: random images of CIFAR-10's shape, on a 4x2 or 8x1
mesh or on one device."""
import argparse
import time

import common

args = argparse.ArgumentParser()
args.add_argument("--mesh", choices=["4x2", "8x1", "none"], default="4x2")
args.add_argument("--batch", type=int, default=128)
args.add_argument("--steps", type=int, default=6)
args.add_argument("--layers", type=int, default=6)
args.add_argument("--dropout", type=float, default=0.1)
args = args.parse_args()
common.use_devices(1 if args.mesh == "none" else 8)

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.experimental import mesh_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

EMBED, MLP, HEADS, PATCH, CLASSES = 384, 1536, 8, 4, 10
xavier = nnx.initializers.xavier_uniform()


class MLPBlock(nnx.Module):
    def __init__(self, rngs):
        self.fc1 = nnx.Linear(EMBED, MLP, kernel_init=xavier, rngs=rngs)
        self.dropout1 = nnx.Dropout(args.dropout, rngs=rngs)
        self.fc2 = nnx.Linear(MLP, EMBED, kernel_init=xavier, rngs=rngs)
        self.dropout2 = nnx.Dropout(args.dropout, rngs=rngs)

    def __call__(self, x):
        return self.dropout2(self.fc2(self.dropout1(nnx.gelu(self.fc1(x)))))


class EncoderBlock(nnx.Module):
    def __init__(self, rngs):
        self.norm1 = nnx.LayerNorm(EMBED, epsilon=1e-6, rngs=rngs)
        self.attn = nnx.MultiHeadAttention(HEADS, EMBED, kernel_init=xavier, decode=False,
                                           rngs=rngs)
        self.norm2 = nnx.LayerNorm(EMBED, epsilon=1e-6, rngs=rngs)
        self.mlp = MLPBlock(rngs)

    def __call__(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class PatchEmbedding(nnx.Module):
    def __init__(self, rngs):
        self.conv_proj = nnx.Conv(3, EMBED, (PATCH, PATCH), (PATCH, PATCH), padding="VALID",
                                  kernel_init=xavier, rngs=rngs)

    def __call__(self, x):
        x = self.conv_proj(x)
        return x.reshape(x.shape[0], -1, EMBED)


class VisionTransformer(nnx.Module):
    def __init__(self, rngs):
        self.patch_embed = PatchEmbedding(rngs)
        self.cls_token = nnx.Param(jnp.zeros((1, 1, EMBED)))
        self.encoder_blocks = nnx.List([EncoderBlock(rngs) for _ in range(args.layers)])
        self.norm = nnx.LayerNorm(EMBED, epsilon=1e-6, rngs=rngs)
        self.head = nnx.Linear(EMBED, CLASSES, kernel_init=xavier, rngs=rngs)

    def __call__(self, x):
        x = self.patch_embed(x)
        x = jnp.concatenate((jnp.tile(self.cls_token[...], (x.shape[0], 1, 1)), x), axis=1)
        for block in self.encoder_blocks:
            x = block(x)
        return self.head(self.norm(x[:, 0]))


if args.mesh == "none":
    mesh = Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("batch", "model"))
else:
    shape = tuple(map(int, args.mesh.split("x")))
    mesh = Mesh(mesh_utils.create_device_mesh(shape), ("batch", "model"))


def place(path, x):
    name = str(path[-2]) if len(path) > 1 else ""
    spec = P()
    if args.mesh != "none":
        key = jax.tree_util.keystr(path)
        if "kernel" in key:
            spec = P(None, "model")
        elif "bias" in key and "norm" not in key:
            spec = P("model")
    return jax.device_put(x, NamedSharding(mesh, spec))


graph, params, rest = nnx.split(VisionTransformer(nnx.Rngs(0)), nnx.Param, ...)
params = jax.tree_util.tree_map_with_path(place, params)
rest = jax.tree.map(lambda x: jax.device_put(x, NamedSharding(mesh, P())), rest)
tx = optax.adam(1e-3)
opt = jax.tree.map(lambda x: x if x.ndim else jax.device_put(x, NamedSharding(mesh, P())),
                   tx.init(params))


def step(state, batch):
    params, rest, opt = state
    images, labels = batch

    model = nnx.merge(graph, params, rest)

    def loss_fn(model):
        return optax.softmax_cross_entropy_with_integer_labels(model(images), labels).mean()

    loss, grads = nnx.value_and_grad(loss_fn)(model)
    _, params, rest = nnx.split(model, nnx.Param, ...)
    updates, opt = tx.update(grads, opt, params)
    return (optax.apply_updates(params, updates), rest, opt), loss


rng = np.random.RandomState(0)
batch = jax.device_put((rng.standard_normal((args.batch, 32, 32, 3)).astype(np.float32),
                        rng.randint(0, CLASSES, args.batch)), NamedSharding(mesh, P("batch")))
state = (params, rest, opt)


def sharding_of(x):
    return NamedSharding(mesh, x.sharding.spec if isinstance(x.sharding, NamedSharding) else P())


shardings = jax.tree.map(sharding_of, state)
start = time.perf_counter()
compiled = jax.jit(step, donate_argnums=(0,),
                   out_shardings=(shardings, None)).lower(state, batch).compile()
compile_s = time.perf_counter() - start
state, losses, seconds = common.timed_steps(compiled, state, [batch], args.steps,
                                            jax.block_until_ready)
common.report("vit", vars(args), compile_s, seconds, losses)
