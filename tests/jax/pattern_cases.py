"""pattern_cases.py: patterns that JAX writes as many operations and Tessera reads as one: random
bits, keys, and updates of one element of each row. Compares each case with JAX's CPU backend, and
looks for the one operation in the text of the program."""
import functools
import os
import pathlib
import re
import tempfile

FOLDER = tempfile.TemporaryDirectory()
os.environ["TESSERA_SHOW"] = FOLDER.name

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.random import threefry_2x32
from jax.sharding import NamedSharding, PartitionSpec as P

import cases
from cases import mesh_of, random, same

CASES = {}
KEY = jax.random.key_data(jax.random.key(7))
MESH = mesh_of(8)


def check(function, arguments, wanted, unwanted, tolerance):
    jax.jit(function).lower(*arguments).compile()
    text = max(pathlib.Path(FOLDER.name).glob("*.txt")).read_text()
    for word in wanted:
        assert re.search(word, text), f"no {word} in\n{text}"
    for word in unwanted:
        assert not re.search(word, text), f"{word} in\n{text}"
    same(function, *arguments, tolerance=tolerance)


def add(name, function, *arguments, wanted=(), unwanted=(), tolerance=3e-6):
    assert name not in CASES, name
    CASES[name] = functools.partial(check, function, arguments, wanted, unwanted, tolerance)


# --- random bits and keys

def with_64_bits(shape):
    with jax.enable_x64(True):
        same(lambda key: jax.random.bits(key, shape, np.uint64), KEY)


# Operations of the rounds of random bits, and of the words of a key.
TURNS = ("shift_left", "concatenate")
for shape in ((), (1,), (9,), (3, 1, 5), (1, 1, 6, 2), (2, 3, 4, 5)):
    add(f"bits_{shape}", lambda key, shape=shape: jax.random.bits(key, shape), KEY,
        wanted=["random_bits"], unwanted=TURNS)
    CASES[f"wide_bits_{shape}"] = functools.partial(with_64_bits, shape)
for dtype in (np.uint8, np.uint16):
    add(f"bits_{np.dtype(dtype)}", lambda key, d=dtype: jax.random.bits(key, (6, 5), d), KEY,
        wanted=["random_bits"], unwanted=TURNS)
add("bernoulli", lambda key: jax.random.bernoulli(key, 0.3, (40, 50)), KEY,
    wanted=["random_bits"], unwanted=TURNS)
add("normal", lambda key: jax.random.normal(key, (40, 50)), KEY, wanted=["random_bits"],
    unwanted=TURNS)
add("fold_in", lambda key, n: jax.random.fold_in(key, n), KEY, np.uint32(9),
    wanted=["random_fold_in"], unwanted=TURNS)
add("fold_in_number", lambda key: jax.random.fold_in(key, 2**32 - 1), KEY,
    wanted=["random_fold_in"], unwanted=TURNS)
add("split", lambda key: jax.random.split(key, 5), KEY, wanted=["random_split"], unwanted=TURNS)
add("split_2d", lambda key: jax.random.split(key, (3, 4)), KEY, wanted=["random_split"],
    unwanted=TURNS)
add("one_key", lambda key: jax.random.split(key, 1), KEY, unwanted=TURNS)
add("keys_of_rows", lambda key: jax.vmap(lambda k: jax.random.bits(k, (5,)))(
    jax.random.split(key, 4)), KEY)
add("scanned", lambda key: lax.scan(lambda k, i: (jax.random.fold_in(k, i),
                                                  jax.random.uniform(k, (6,))),
                                    key, jnp.arange(5, dtype=np.uint32)), KEY,
    wanted=["random_bits", "random_fold_in"], unwanted=TURNS)


def without_positions(function, *arguments):
    """Counts as older versions of JAX do: the halves of an array are the two words of a counter."""
    with jax.threefry_partitionable(False):
        same(function, *arguments)


for shape in ((6,), (7,), (4, 6)):
    CASES[f"other_counters_{shape}"] = functools.partial(
        without_positions, lambda key, shape=shape: jax.random.bits(key, shape), KEY)
CASES["other_counters_split"] = functools.partial(
    without_positions, lambda key: jax.random.split(key, 4), KEY)
WORDS = np.random.RandomState(3).randint(0, 1 << 32, 12, np.uint32)
add("threefry_of_numbers", threefry_2x32, KEY, WORDS)
add("threefry_joined", lambda key, x: (lambda y: y[:6] ^ y[6:])(threefry_2x32(key, x)), KEY, WORDS)
add("threefry_of_iota", lambda key: (lambda y: y[:6] ^ y[6:])(
    threefry_2x32(key, jnp.concatenate([jnp.zeros(6, np.uint32),
                                        2 * jnp.arange(6, dtype=np.uint32)]))), KEY)


def split_bits(key, spec):
    return lax.with_sharding_constraint(jax.random.bits(key, (16, 24)), NamedSharding(MESH, spec))


for spec in (P("x"), P(None, "x")):
    add(f"bits_split_{spec}", functools.partial(split_bits, spec=spec), KEY)
add("bits_of_devices", jax.shard_map(
    lambda key: jax.random.bits(jax.random.fold_in(key, lax.axis_index("x")), (2, 5)),
    mesh=MESH, in_specs=P(), out_specs=P("x")), KEY)

# --- one element of each row

ROWS = random(6, 5)
AT = np.random.RandomState(1).randint(-3, 9, (6, 5)).astype(np.int32)


def taken(x, at, axis):
    return jnp.take_along_axis(x, jnp.expand_dims(at, axis), axis, mode="fill", fill_value=0.5)


for axis in (0, 1, 2):
    shape = [6, 5]
    shape.insert(axis, 7)
    add(f"gradient_along_{axis}",
        jax.grad(lambda x, at, axis=axis: jnp.sum(jnp.sin(taken(x, at, axis)))),
        random(*shape), AT, unwanted=["scatter"])
add("cross_entropy", jax.grad(lambda x, at: -jnp.sum(jnp.take_along_axis(
    jax.nn.log_softmax(x), at[:, None], 1))), random(6, 9), AT[:, 0] % 9, unwanted=["scatter"])

PLACES = np.random.RandomState(5).randint(-9, 9, (6, 5)).astype(np.int32)
for axis in (0, 1):
    add(f"along_{axis}", functools.partial(jnp.take_along_axis, axis=axis), ROWS, PLACES,
        unwanted=["reduce_and"])
add("points", lambda x, i, j: x[i, j], ROWS, PLACES % 6, PLACES, unwanted=["concatenate"])
add("changed_points", lambda x, i, j: x.at[i, j].add(1.5), ROWS, PLACES % 6, PLACES % 5,
    unwanted=["concatenate"])

# Searches among numbers for which JAX has an order of its own.
EDGES = np.float32([-np.inf, -7, -1.5, -0.0, 0.0, 0.0, 1.5, 3, np.inf, np.nan])
SOUGHT = np.concatenate([EDGES, random(40) * 3, -EDGES])
for side in ("left", "right"):
    for dtype in (np.float32, np.float16, jnp.bfloat16):
        add(f"search_{side}_{np.dtype(dtype)}",
            functools.partial(jnp.searchsorted, side=side), EDGES.astype(dtype),
            SOUGHT.astype(dtype), unwanted=["bitcast", " div"])
WHOLE = np.uint32([0, 1, 7, 8, 9, 1 << 31, (1 << 32) - 1])
for divisor in (1, 8, 1 << 31):
    add(f"divide_by_{divisor}", lambda x, d=divisor: (
        lax.div(x, jnp.full_like(x, d)), lax.rem(x, jnp.full_like(x, d))), WHOLE,
        unwanted=[" div", " rem"])


def one_hot(join, x, at):
    rows = jnp.arange(6)
    return getattr(jnp.full((6, 9), 2.0, x.dtype).at[rows, at], join)(x, mode="drop")


for join in ("set", "add", "subtract", "multiply", "max", "min"):
    for dtype in (np.float32, np.int32, jnp.bfloat16, np.float16):
        add(f"{join}_{np.dtype(dtype)}", functools.partial(one_hot, join),
            jnp.asarray(ROWS[:, 0] * 3).astype(dtype), AT[:, 1])
BATCH = lax.ScatterDimensionNumbers(
    update_window_dims=(1,), inserted_window_dims=(1,), scatter_dims_to_operand_dims=(1,),
    operand_batching_dims=(0, 3), scatter_indices_batching_dims=(1, 0))
add("batched_rows", lambda u, at: lax.scatter_add(jnp.zeros((5, 4, 3, 6)), at[..., None],
                                                  u, BATCH), random(6, 3, 5), AT,
    unwanted=["scatter"])
add("batched_set", lambda u, at: lax.scatter(jnp.ones((5, 4, 3, 6)), at[..., None], u, BATCH),
    random(6, 3, 5), AT, unwanted=["scatter"])
add("one_of_all", lambda u, i: jnp.zeros((7,)).at[i].set(u), np.float32(3), np.int32(4))
add("one_line", lambda u, i: jnp.zeros((7, 3)).at[i].add(u), random(3), np.int32(6))
add("several_per_row", lambda u, at: jnp.zeros((6, 9)).at[jnp.arange(6)[:, None], at].add(
    u, mode="drop"), ROWS, AT)
add("minus_zero", lambda x: 1 / jnp.zeros((3, 2)).at[jnp.arange(3), 0].add(x),
    np.float32([-0.0, 0.0, 1.0]))

# --- rows along inner dimensions, which are read and written in place

TABLE = random(4, 30, 5, 3)
MOVED = r"\[(?=[0-9,]*\b30\b)(?=[0-9,]*\b3\b)[0-9,]*\]\S* = transpose"  # of the whole array
ROWS = np.int32([3, 29, 3])
for at_name, at in {"second": np.s_[:, 7], "several": np.s_[:, ROWS], "pair": np.s_[:, 7, 2],
                    "last": np.s_[..., 2], "apart": np.s_[1, :, 2], "lines": np.s_[:, ROWS, 1],
                    "first_and_last": np.s_[2, ..., 1], "outside": np.s_[:, ROWS + 20]}.items():
    def moved(i, at=at):
        return tuple(each if isinstance(each, slice) or each is Ellipsis else each + i
                     for each in at)

    add(f"read_{at_name}", lambda x, i, moved=moved: x[moved(i)], TABLE, np.int32(0),
        unwanted=[MOVED])
    for method in ("set", "add", "max", "multiply"):
        value = 2.0 if method == "multiply" else -0.25
        add(f"{method}_{at_name}", lambda x, i, m=moved, method=method, value=value: getattr(
            x.at[m(i)], method)(value, mode="drop"), TABLE, np.int32(0),
            wanted=["scatter"], unwanted=[MOVED])
add("add_to_few_of_many", lambda x, i, u: x.at[i].add(u), random(400, 3),
    np.int32([5, 399, 5, 400, -1, 7, 5]), random(7, 3), wanted=["cumsum"])
add("subtract_from_few_of_many", lambda x, i, u: x.at[:, i].add(-u), random(3, 400),
    np.int32([5, 399, 5, 400, -1, 7, 5]), random(3, 7), wanted=["cumsum"],
    unwanted=[r"\b400\b\S* = transpose"])
add("add_to_unique", lambda x, i, u: x.at[i].add(u, unique_indices=True), random(9, 3),
    np.int32([5, 2, 7]), random(3, 3), wanted=["gather"], unwanted=["scatter_add"])


# --- gradients of arrays that loops read: each iteration changes a part of the gradient

def gradient_of_loop(read):
    def total(x, i):
        return lax.fori_loop(0, 5, lambda k, t: t * 1.5 + jnp.sin(read(x, i, k)).sum(), 1.0)

    return jax.grad(total)


READS = {
    "element": lambda x, i, k: x[k, i[0] + k],
    "row": lambda x, i, k: x[k] * x[5 - k],
    "column": lambda x, i, k: x[:, 2 * k],
    "rows": lambda x, i, k: x[i + k],
    "few_rows": lambda x, i, k: x[i[0] + k] * jnp.take(x, i[1:3], axis=0, mode="clip"),
    "slices": lambda x, i, k: lax.dynamic_slice(x, (i[1], k), (3, 4)) * x[5, 7],
    "static": lambda x, i, k: x[3] * x[4:6] + k,
}
for name, read in READS.items():
    add(f"gradient_of_{name}_in_loop", gradient_of_loop(read), random(400, 60),
        np.int32([5, 399, 5, 2]), wanted=["scan"], unwanted=[r"f32\[400,60\]\S* = add"])

# --- gradients of matrices that loops multiply by few rows: one product after the loop

def recurrent(step, **options):
    def total(params, xs):
        start = jnp.ones(60, xs.dtype)
        carry, ys = lax.scan(lambda h, x: (step(params, h, x), h), start, xs, **options)
        return (carry * ys).sum()

    return jax.grad(total)


def joined(p, h, x):
    return jnp.tanh(sum(jnp.split(h @ jnp.concatenate([p["u"], p["v"]], 1) + x @ p["w"].T, 2)))


def nested(p, h, x):
    return lax.fori_loop(0, 3, lambda k, h: jnp.sin(h @ p["u"]) * 0.5 + x[k], h)


PARAMS = {"u": random(60, 60) / 20, "v": random(60, 60) / 20, "w": random(120, 50) / 20,
          "t": random(60, 4, 15) / 20, "x": random(50, 60) / 20}
LATE = {
    "matrix": lambda p, h, x: jnp.tanh(h @ p["u"] + x @ p["x"]),
    "matrix_of_two_uses": lambda p, h, x: jnp.sin(jnp.cos(h @ p["u"]) @ p["u"] + x[0]),
    "joined_matrices": joined,
    "transposed_matrix": lambda p, h, x: jnp.sin(p["u"] @ h) + x[1],
    "three_dimensions": lambda p, h, x: jnp.sin(jnp.einsum("i,ijk->jk", h, p["t"])).reshape(60),
    "matrix_with_other_terms": lambda p, h, x: jnp.sin(h @ p["u"]) + p["u"][3] * p["u"].sum(1),
    "nested_loop": nested,
}
for name, step in LATE.items():
    sum_in_loop = r"\n    .*: b?f(32|16)\[(60,60|60,4,15|120,50|50,60)\]\S* = add"
    unwanted = [] if "other" in name else [sum_in_loop]
    for dtype in (np.float16, jnp.bfloat16):
        halves = jax.tree.map(lambda x, d=dtype: x.astype(d), (PARAMS, random(6, 50)))
        add(f"gradient_of_{name}_{np.dtype(dtype)}", recurrent(step), *halves, wanted=["scan"],
            unwanted=unwanted)
    add(f"gradient_of_{name}", recurrent(step), PARAMS, random(9, 50), wanted=["scan"],
        unwanted=unwanted)
    add(f"gradient_of_{name}_backwards", recurrent(step, reverse=True), PARAMS, random(9, 50))
    add(f"gradient_of_{name}_in_batches", jax.vmap(recurrent(step), (None, 0)), PARAMS,
        random(2, 9, 50))
    add(f"hessian_of_{name}", lambda p, xs, g=recurrent(step): jax.grad(
        lambda p: sum((x ** 2).sum() for x in jax.tree.leaves(g(p, xs))))(p), PARAMS, random(4, 50))

if __name__ == "__main__":
    cases.main(CASES)
