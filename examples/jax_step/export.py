"""Writes a training step of JAX for main.cc: step.mlirbc, and in start.safetensors the state that
it begins with and a batch. Prints the losses of ten steps.

    pip install jax optax safetensors
    python export.py FOLDER
"""
import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
from safetensors.numpy import save_file

SIZES = [12, 32, 32, 5]  # features of each layer
optimizer = optax.adamw(1e-2)


def init(key):
    keys = jax.random.split(key, len(SIZES) - 1)
    params = [{"kernel": jax.random.normal(k, (n, m)) / n**0.5, "bias": jnp.zeros(m)}
              for k, n, m in zip(keys, SIZES, SIZES[1:])]
    return params, optimizer.init(params)


def loss_of(params, x, labels):
    for layer in params[:-1]:
        x = jax.nn.gelu(x @ layer["kernel"] + layer["bias"])
    logits = x @ params[-1]["kernel"] + params[-1]["bias"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def step(state, x, labels):
    params, moments = state
    loss, gradients = jax.value_and_grad(loss_of)(params, x, labels)
    updates, moments = optimizer.update(gradients, moments, params)
    return (optax.apply_updates(params, updates), moments), loss


folder = pathlib.Path(sys.argv[1])
state = init(jax.random.key(0))
x = jax.random.normal(jax.random.key(1), (16, SIZES[0]))
labels = jax.random.randint(jax.random.key(2), (16,), 0, SIZES[-1])
jitted = jax.jit(step, donate_argnums=0)
exported = jax.export.export(jitted)(state, x, labels)
(folder / "step.mlirbc").write_bytes(exported.mlir_module_serialized)
# The names are the positions among the leaves of the arguments.
leaves = jax.tree.leaves((state, x, labels))
save_file({f"{i:03}": np.asarray(leaf) for i, leaf in enumerate(leaves)},
          folder / "start.safetensors")
for i in range(10):
    state, loss = jitted(state, x, labels)
    print(f"step {i}  loss {loss:.6f}")
