"""Writes golden/attention.json: random cases of jax.nn.dot_product_attention and its gradients.

Run in an environment with jax; the tests only read what it wrote. Element n of array number a of
case c is hashed(c, a, n); the loss is the sum of the output times such an array.
"""
import json
import math
import pathlib
import random

import jax
import jax.numpy as jnp
import numpy as np

FOLDER = pathlib.Path(__file__).parent / "golden"
SEED = 20
CASES = 32


def hashed(case, array, shape):
    n = np.arange(math.prod(shape), dtype=np.uint64)
    x = (n * 2654435761 + array * 40503 + case * 69069 + 12345) % 2**32
    x = (x ^ (x >> 13)) * 1274126177 % 2**32
    x = x ^ (x >> 16)
    return jnp.asarray((x % 4001).astype(np.float64) / 1000 - 2, jnp.float32).reshape(shape)


def draw(rng):
    key_heads = rng.choice([1, 2, 3])
    case = dict(batch=rng.choice([1, 2, 3]), queries=rng.randint(1, 24), keys=rng.randint(1, 24),
                key_heads=key_heads, heads=key_heads * rng.choice([1, 1, 2, 4]),
                depth=rng.choice([1, 3, 8, 17]), is_causal=rng.random() < 0.4, before=-1, after=-1,
                scale=rng.choice([None, 0.3]), lengths=None, bias=None)
    if rng.random() < 0.4:
        case["before"], case["after"] = rng.randint(0, 20), rng.randint(0, 20)
    if rng.random() < 0.4:
        case["lengths"] = [rng.randint(1, case["keys"]) for _ in range(case["batch"])]
    if rng.random() < 0.5:
        sizes = [case["batch"], case["heads"], case["queries"], case["keys"]]
        case["bias"] = [rng.choice([1, size]) for size in sizes]
    return case


def sees_keys(case):
    """Whether every query sees a key; JAX does not document what it returns otherwise."""
    for length in case["lengths"] or [case["keys"]]:
        for i in range(case["queries"]):
            first = 0 if case["before"] < 0 else max(0, i - case["before"])
            last = length if case["after"] < 0 else min(length, i + case["after"] + 1)
            if case["is_causal"]:
                last = min(last, i + 1)
            if first >= last:
                return False
    return True


def summary(array):
    flat = np.asarray(array, np.float64).ravel()
    weights = np.cos(np.arange(flat.size) * 0.7)
    return dict(first=flat[:3].tolist(), sum=float(flat.sum()), weighted=float(flat @ weights),
                size=float(np.abs(flat).sum()))


def record(number, case):
    queries = (case["batch"], case["queries"], case["heads"], case["depth"])
    keys = (case["batch"], case["keys"], case["key_heads"], case["depth"])
    arrays = [hashed(number, i, shape) for i, shape in enumerate((queries, keys, keys))]
    if case["bias"]:
        arrays.append(hashed(number, 3, case["bias"]))
    weight = hashed(number, 4, queries)

    def loss(q, k, v, bias=None):
        if bias is not None:  # jax.nn wants the head dimension whole in some versions
            bias = jnp.broadcast_to(bias, (bias.shape[0], case["heads"], case["queries"],
                                           case["keys"]))
        window = None if case["before"] < 0 else (case["before"], case["after"])
        lengths = None if case["lengths"] is None else jnp.asarray(case["lengths"], jnp.int32)
        output = jax.nn.dot_product_attention(
            q, k, v, bias=bias, scale=case["scale"], is_causal=case["is_causal"],
            key_value_seq_lengths=lengths, local_window_size=window)
        return jnp.sum(output * weight), output

    gradient = jax.jit(jax.grad(loss, argnums=tuple(range(len(arrays))), has_aux=True))
    gradients, output = gradient(*arrays)
    jax.clear_caches()
    return dict(case, number=number, output=summary(output),
                gradients=[summary(g) for g in gradients])


rng = random.Random(SEED)
cases = []
while len(cases) < CASES:
    drawn = draw(rng)
    if sees_keys(drawn):
        cases.append(record(len(cases), drawn))
content = dict(source=f"JAX {jax.__version__}", seed=SEED, cases=cases)
(FOLDER / "attention.json").write_text(json.dumps(content) + "\n")
