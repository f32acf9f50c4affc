"""edge_cases.py: rows without updates, empty arrays, windows larger than arrays, singular matrices,
signs of zeros and orders of NaN, beside JAX's CPU backend. Prints what differs."""
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from cases import main, random, same

CASES = {}


def add(name, function, *arguments, tolerance=3e-6):
    assert name not in CASES, name
    CASES[name] = functools.partial(same, function, *arguments, tolerance=tolerance)


jax.config.update("jax_enable_x64", True)

# --- rows without updates, of every dtype

IDS = {"few": [0, 0, 5, -1], "one": [2, 2, 2, 2], "all": [0, 1, 2, 3]}


def joined(x, ids):
    names = ("sum", "prod", "max", "min")
    segments = [getattr(jax.ops, f"segment_{name}")(x, ids, 5) for name in names]
    columns = [getattr(jax.ops, f"segment_{name}")(x[:, 0], ids, 5) for name in names]
    written = [getattr(x.at[ids], name)(x * 2 + 1) for name in ("add", "mul", "max", "min")]
    return segments, columns, written


for dtype in "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32".split():
    for name, ids in IDS.items():
        for first in (0, -100):
            x = (np.arange(12).reshape(4, 3) + first).astype(np.dtype(dtype))
            add(f"joined_{dtype}_{name}_{first}", joined, x, np.array(ids))

# --- empty arrays and windows


def pool(x, kind=lax.max, start=-np.inf, window=(1, 2, 2, 1), padding="SAME"):
    return lax.reduce_window(x, np.asarray(start, x.dtype), kind, window, window, padding)


POOLS = {"max": pool, "min": functools.partial(pool, kind=lax.min, start=np.inf),
         "sum": functools.partial(pool, kind=lax.add, start=0)}
for name, function in POOLS.items():
    for shape in ((0, 4, 4, 2), (2, 4, 4, 0), (2, 0, 4, 3)):
        add(f"{name}_pool_{shape}", function, np.zeros(shape, np.float32))
        add(f"{name}_pool_grad_{shape}", jax.grad(lambda x, f=function: jnp.sum(f(x) ** 2)),
            np.zeros(shape, np.float32))
    large = functools.partial(function, window=(7,), padding="VALID")
    add(f"{name}_large_window", large, random(5))
    add(f"{name}_large_window_grad", jax.grad(lambda x, f=large: jnp.sum(f(x))), random(5))
add("unwrap_of_nothing", lambda x: jnp.unwrap(x, axis=0), np.zeros((2, 0, 3), np.float32))

# --- singular matrices

SINGULAR = {"zero": [[0.0]], "zeros": [[0.0, 0.0], [0.0, 0.0]], "rank_1": [[1.0, 2.0], [2.0, 4.0]],
            "diagonal": np.diag([1.0, 0.0, 2.0])}
for name, matrix in SINGULAR.items():
    for dtype in (np.float32, np.float64):
        x = np.array(matrix, dtype)
        tag = f"{name}_{np.dtype(dtype)}"
        add(f"inv_{tag}", jnp.linalg.inv, x)
        add(f"solve_{tag}", lambda x: jnp.linalg.solve(x, jnp.ones_like(x)), x)
        for side in (False, True):
            add(f"triangular_{side}_{tag}", lambda x, side=side: lax.linalg.triangular_solve(
                x, jnp.ones_like(x), left_side=side, lower=True), x)

# --- signs of zeros


def with_signs(function):
    return lambda *args: [(x, jnp.signbit(x)) for x in jax.tree.leaves(function(*args))]


x, y = np.array([-3.0, 0.0, -0.0, 2.0], np.float32), np.array([0.0, -1.0, -0.0], np.float32)
add("scalar_dot", with_signs(lambda x, y: jnp.dot(x[0], y)), x, y)
add("outer_products", with_signs(lambda x, y: jnp.einsum("i,j->ji", x, y)), x, y)
add("outer_of_batches", with_signs(lambda x, y: jnp.einsum("bi,jb->bij", x, y)),
    x.reshape(2, 2), np.stack([y, -y], 1))

# --- the greatest elements in the total order: NaN by its sign, -0 before +0

ORDERED = np.array([0.0, np.nan, -0.0, 2.0, -np.inf, -np.nan, 0.0, -3.0, np.inf, 2.0, np.nan])
for dtype in "float16 bfloat16 float32 float64".split():
    x = ORDERED.astype(np.dtype(dtype))
    add(f"top_k_{dtype}", with_signs(lambda x: lax.top_k(x, 9)), x)
    add(f"top_k_of_rows_{dtype}", with_signs(lambda x: lax.top_k(x, 1)), np.stack([x, -x], 1))
    for k in (0, 3, 10):
        add(f"partition_{k}_{dtype}", with_signs(lambda x, k=k: jnp.partition(x, k)), x)
        add(f"argpartition_{k}_{dtype}", lambda x, k=k: jnp.argpartition(x, k), x)

# --- products of integers as floats, which do not wrap

LARGE = np.array([[2**30, 5, -7], [2**29, 2**31 - 1, 3]])
for dtype in ("int16", "int32", "uint32", "int64"):
    x = LARGE.astype(dtype)
    for wanted in (np.float32, np.float64)[x.dtype.itemsize // 8:]:  # no narrower dtype than x
        tag = f"{dtype}_{np.dtype(wanted)}"
        add(f"dot_{tag}", lambda x, t=wanted: lax.dot(x, x.T, preferred_element_type=t), x,
            tolerance=1e-6)
        add(f"conv_{tag}", lambda x, t=wanted: lax.conv_general_dilated(
            x[None], x[:, :, None], (1,), "SAME", preferred_element_type=t,
            dimension_numbers=("NCH", "IOH", "NCH")), x, tolerance=1e-6)

if __name__ == "__main__":
    main(CASES)
