"""The ops of random_programs.py. Each function draws a random step and adds it to a program, or
does nothing if no value fits."""
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


def is_float(value):
    return value.is_float()


def is_number(value):
    return value.dtype != jnp.bool_


def is_integer(value):
    return jnp.issubdtype(value.dtype, jnp.integer)


def is_exact(value):
    return value.is_exact()


def has_dims(value):
    return value.ndim > 0


def is_filled(value):
    return value.array.size > 0


def has_room(value):
    return value.array.size <= 512


def axis_of(program, value):
    return int(program.rng.integers(value.ndim))


def axes_of(program, value):
    count = program.rng.integers(1, value.ndim + 1)
    return tuple(sorted(int(i) for i in program.rng.permutation(value.ndim)[:count]))


def choose(program, table):
    names = sorted(table)
    name = names[program.rng.integers(len(names))]
    return name, table[name]


# --- elementwise

# Functions that keep values moderate and errors small.
SMOOTH = {
    "sin": jnp.sin, "cos": jnp.cos, "tanh": jnp.tanh, "sigmoid": jax.nn.sigmoid,
    "exp": lambda x: jnp.exp(-jnp.abs(x)), "log": lambda x: jnp.log(jnp.abs(x) + 0.5),
    "log1p": lambda x: jnp.log1p(jnp.abs(x)), "sqrt": lambda x: jnp.sqrt(jnp.abs(x) + 0.5),
    "rsqrt": lambda x: lax.rsqrt(jnp.abs(x) + 0.5), "expm1": lambda x: jnp.expm1(-jnp.abs(x)),
    "reciprocal": lambda x: 1 / (jnp.abs(x) + 0.5), "erf": lax.erf, "arctan": jnp.arctan,
    "gelu": jax.nn.gelu, "silu": jax.nn.silu, "softplus": jax.nn.softplus,
    "cbrt": lambda x: jnp.cbrt(jnp.abs(x) + 0.5), "logistic": lax.logistic,
    "square": lambda x: x * x, "arcsinh": jnp.arcsinh}
# Functions that are not smooth: the operand must be known without rounding.
DISCRETE = {
    "floor": jnp.floor, "ceil": jnp.ceil, "round": jnp.round, "sign": jnp.sign, "abs": jnp.abs,
    "relu": jax.nn.relu, "trunc": jnp.trunc, "clip": lambda x: jnp.clip(x, -1, 2),
    "rint": jnp.rint, "relu6": jax.nn.relu6}
ARITHMETIC = {"add": jnp.add, "subtract": jnp.subtract, "multiply": jnp.multiply}
CHOICES = {"maximum": jnp.maximum, "minimum": jnp.minimum}
COMPARISONS = {"equal": jnp.equal, "less": jnp.less, "greater_equal": jnp.greater_equal}
WHOLE = {"and": jnp.bitwise_and, "or": jnp.bitwise_or, "xor": jnp.bitwise_xor,
         "floor_divide": lambda x, y: x // (y | 1), "remainder": lambda x, y: x % (y | 1),
         "shift_left": lambda x, y: x << (y & 7), "shift_right": lambda x, y: x >> (y & 7)}


def smooth(program):
    i = program.pick(is_float)
    if i is not None:
        name, function = choose(program, SMOOTH)
        program.add(name, function, [i])


def discrete(program):
    i = program.pick(is_float, is_exact)
    if i is not None:
        name, function = choose(program, DISCRETE)
        program.add(name, function, [i], program.values[i].bits)


def other_operand(program, i, *accepted):
    """A value of the same dtype whose shape is compatible with that of value i."""
    value = program.values[i]

    def fits(other):
        try:
            shape = np.broadcast_shapes(value.shape, other.shape)
        except ValueError:
            return False
        return other is value or other.dtype == value.dtype and np.prod(shape) <= 2048
    return program.pick(fits, *accepted)


def arithmetic(program):
    i = program.pick(is_number)
    if i is None:
        return
    j = other_operand(program, i)
    name, function = choose(program, ARITHMETIC)
    one, other = program.values[i].bits, program.values[j].bits
    program.add(name, function, [i, j], one + other if name == "multiply" else max(one, other) + 1)


def extreme(program):
    i = program.pick(is_number, is_exact)
    if i is not None:
        j = other_operand(program, i, is_exact)
        name, function = choose(program, CHOICES)
        program.add(name, function, [i, j], max(program.values[i].bits, program.values[j].bits))


def comparison(program):
    i = program.pick(is_exact)
    if i is not None:
        name, function = choose(program, COMPARISONS)
        program.add(name, function, [i, other_operand(program, i, is_exact)])


def whole(program):
    i = program.pick(is_integer)
    if i is not None:
        name, function = choose(program, WHOLE)
        program.add(name, function, [i, other_operand(program, i)])


def where(program):
    i = program.pick(is_exact)
    if i is None:
        return
    j = other_operand(program, i)
    k = program.pick(lambda v: v.dtype == jnp.bool_ and v.ndim <= program.values[i].ndim and
                     all(a in (1, b) for a, b in zip(v.shape[::-1], program.values[i].shape[::-1])))
    if k is None:
        program.add("where positive", lambda x, y: jnp.where(x > 0, x, y), [i, j],
                    max(program.values[i].bits, program.values[j].bits))
    else:
        program.add("where", jnp.where, [k, i, j],
                    max(program.values[i].bits, program.values[j].bits))


def convert(program):
    i = program.pick(is_exact)
    if i is None:
        return
    name = program.rng.choice(["float32", "bfloat16", "int32", "uint32", "float16", "bool"])
    if name in ("bool", "uint32") and program.values[i].is_float():
        name = "float32"  # unsigned integers cannot hold negative numbers
    known = {"bfloat16": 7, "float16": 10}.get(name, 24) >= program.values[i].bits
    program.add(f"convert {name}", lambda x: x.astype(jnp.dtype(name)), [i],
                program.values[i].bits if known else np.inf)


# --- moves

def reshape(program):
    i = program.pick(is_filled)
    size, shape = program.values[i].array.size, []
    while size > 1 and len(shape) < 4:
        factors = [f for f in (1, 2, 3, 4, 6, 8, size) if size % f == 0]
        shape.append(int(program.rng.choice(factors)))
        size //= shape[-1]
    shape.append(size)
    program.add(f"reshape {shape}", lambda x: x.reshape(shape), [i], program.values[i].bits)


def transpose(program):
    i = program.pick(has_dims)
    if i is not None:
        order = [int(d) for d in program.rng.permutation(program.values[i].ndim)]
        program.add(f"transpose {order}", lambda x: x.transpose(order), [i],
                    program.values[i].bits)


def broadcast(program):
    i = program.pick(has_room)
    if i is not None:
        count = int(program.rng.choice([2, 3, 4, 8]))
        shape = (count, *program.values[i].shape)
        program.add(f"broadcast {count}", lambda x: jnp.broadcast_to(x, shape), [i],
                    program.values[i].bits)


def flip(program):
    i = program.pick(has_dims)
    if i is not None:
        axes = axes_of(program, program.values[i])
        program.add(f"flip {axes}", lambda x: jnp.flip(x, axes), [i], program.values[i].bits)


def strided(program):
    i = program.pick(has_dims, is_filled)
    if i is None:
        return
    cuts = []
    for size in program.values[i].shape:
        start = int(program.rng.integers(size))
        stop = int(program.rng.integers(start + 1, size + 1))
        cuts.append(slice(start, stop, int(program.rng.integers(1, 4))))
    program.add(f"slice {[(c.start, c.stop, c.step) for c in cuts]}", lambda x: x[tuple(cuts)],
                [i], program.values[i].bits)


def pad(program):
    i = program.pick(has_dims, has_room, is_filled)
    if i is None:
        return
    config = [(int(program.rng.integers(-1, 3)) if size > 2 else 0,
               int(program.rng.integers(0, 3)), int(program.rng.integers(0, 2)))
              for size in program.values[i].shape]
    program.add(f"pad {config}", lambda x: lax.pad(x, jnp.zeros((), x.dtype), config), [i],
                program.values[i].bits)


def concatenate(program):
    i = program.pick(has_dims, has_room)
    if i is None:
        return
    value = program.values[i]
    axis = axis_of(program, value)
    j = program.pick(lambda v: v.dtype == value.dtype and v.ndim == value.ndim and has_room(v) and
                     all(a == b for d, (a, b) in enumerate(zip(v.shape, value.shape))
                         if d != axis))
    program.add(f"concatenate {axis}", lambda x, y: jnp.concatenate([x, y], axis), [i, j],
                max(value.bits, program.values[j].bits))


def roll(program):
    i = program.pick(has_dims)
    if i is not None:
        axis = axis_of(program, program.values[i])
        shift = int(program.rng.integers(-3, 4))
        program.add(f"roll {shift} {axis}", lambda x: jnp.roll(x, shift, axis), [i],
                    program.values[i].bits)


# --- reductions and sorts

def total(program):
    i = program.pick(has_dims, is_number, is_filled)
    if i is None:
        return
    value = program.values[i]
    axes, keep = axes_of(program, value), bool(program.rng.random() < 0.4)
    count = np.prod([value.shape[a] for a in axes])
    name, function = choose(program, {"sum": jnp.sum, "mean": jnp.mean})
    if name == "mean" and not value.is_float():
        name, function = "sum", jnp.sum
    bits = value.bits + np.ceil(np.log2(count)) if name == "sum" else np.inf
    program.add(f"{name} {axes}", lambda x: function(x, axis=axes, keepdims=keep).astype(x.dtype),
                [i], bits)


def of_rows(program):
    i = program.pick(has_dims, is_float, is_filled)
    if i is None:
        return
    axis = axis_of(program, program.values[i])
    name, function = choose(program, {
        "softmax": jax.nn.softmax, "log_softmax": jax.nn.log_softmax,
        "logsumexp": jax.nn.logsumexp, "standardize": functools.partial(
            jax.nn.standardize, epsilon=0.1), "cumsum": jnp.cumsum, "var": jnp.var,
        "cumlogsumexp": lax.cumlogsumexp})
    program.add(f"{name} {axis}", lambda x: function(x, axis=axis), [i])


def ordered(program):
    i = program.pick(has_dims, is_exact, is_filled, is_number)
    if i is None:
        return
    value = program.values[i]
    axis = axis_of(program, value)
    name, function = choose(program, {
        "max": jnp.max, "min": jnp.min, "argmax": jnp.argmax, "argmin": jnp.argmin,
        "sort": jnp.sort, "argsort": jnp.argsort, "cummax": lax.cummax, "cummin": lax.cummin,
        "top": lambda x, axis: lax.top_k(jnp.moveaxis(x, axis, -1), (x.shape[axis] + 1) // 2)[0]})
    program.add(f"{name} {axis}", lambda x: function(x, axis=axis), [i], value.bits)


# --- products and windows

def product(program):
    i = program.pick(has_dims, is_float, is_filled)
    if i is None:
        return
    one = program.values[i]
    j = program.pick(has_dims, is_filled, lambda v: v.dtype == one.dtype and any(
        size in one.shape for size in v.shape))
    if j is None:
        return
    other = program.values[j]
    letters = "abcdefgh"
    left, right = letters[:one.ndim], list("ijklmnop"[:other.ndim])
    shared = []
    for dim in program.rng.permutation(other.ndim):
        fit = [d for d in range(one.ndim) if one.shape[d] == other.shape[dim] and
               left[d] not in shared]
        if fit and (not shared or program.rng.random() < 0.5):
            right[dim] = left[int(program.rng.choice(fit))]
            shared.append(right[dim])
    # Some shared dimensions stay in the result, like those of a batch.
    kept = [c for c in shared if program.rng.random() < 0.3]
    output = [c for c in [*left, *right] if c not in shared] + kept
    output = [str(c) for c in program.rng.permutation(output)] if output else []
    sizes = dict(zip([*left, *right], [*one.shape, *other.shape]))
    if np.prod([sizes[c] for c in output]) > 2048:
        return
    formula = f"{left},{''.join(right)}->{''.join(output)}"
    terms = np.prod([sizes[c] for c in shared if c not in kept])
    program.add(formula, lambda x, y: jnp.einsum(formula, x, y), [i, j],
                one.bits + other.bits + np.ceil(np.log2(terms)))


def convolution(program):
    rng, count = program.rng, int(program.rng.integers(1, 3))
    i = program.pick(is_float, is_filled, lambda v: v.ndim == count + 2)
    if i is None:
        return
    value = program.values[i]
    groups = int(rng.choice([g for g in (1, 2, value.shape[1]) if value.shape[1] % g == 0]))
    window = [int(rng.integers(1, 4)) for _ in range(count)]
    kernel = rng.integers(-4, 5, (groups * int(rng.integers(1, 4)), value.shape[1] // groups,
                                  *window)) / 4
    strides = [int(rng.integers(1, 3)) for _ in range(count)]
    padding = [(int(rng.integers(0, 3)), int(rng.integers(0, 3))) for _ in range(count)]
    base, spread = [[int(rng.integers(1, 3)) for _ in range(count)] for _ in range(2)]
    outputs = [(size - 1) * b + low + high - (w - 1) * d for size, b, (low, high), w, d in
               zip(value.shape[2:], base, padding, window, spread)]
    if min(outputs) < 1:
        return
    program.add(f"conv {kernel.shape} {strides} {padding} {base} {spread} {groups}",
                lambda x: lax.conv_general_dilated(
                    x, jnp.asarray(kernel, x.dtype), strides, padding, base, spread,
                    feature_group_count=groups), [i])


def window(program):
    i = program.pick(is_float, is_exact, is_filled, lambda v: 1 <= v.ndim <= 4)
    if i is None:
        return
    rng, value = program.rng, program.values[i]
    sizes, strides = [[int(rng.integers(1, 4)) for _ in value.shape] for _ in range(2)]
    sizes = [min(size, dim) for size, dim in zip(sizes, value.shape)]
    padding = str(rng.choice(["SAME", "VALID"]))
    name, start, function = [("max", -np.inf, lax.max), ("sum", 0, lax.add)][rng.integers(2)]
    program.add(f"window {name} {sizes} {strides} {padding}", lambda x: lax.reduce_window(
        x, np.asarray(start, x.dtype), function, sizes, strides, padding), [i],
        value.bits + (np.ceil(np.log2(np.prod(sizes))) if name == "sum" else 0))


# --- indices

def random_indices(program, size, count):
    # Some indices are out of range. JAX's modes define what happens then.
    return np.asarray(program.rng.integers(-size - 1, size + 2, count), np.int32)


def take(program):
    i = program.pick(has_dims, is_filled)
    if i is None:
        return
    value = program.values[i]
    axis = axis_of(program, value)
    indices = random_indices(program, value.shape[axis], int(program.rng.integers(1, 6)))
    mode = str(program.rng.choice(["clip", "wrap", "fill"]))
    fill = {"fill_value": 0} if mode == "fill" else {}
    program.add(f"take {indices} {axis} {mode}",
                lambda x: jnp.take(x, indices, axis=axis, mode=mode, **fill), [i], value.bits)


def scatter(program):
    i = program.pick(has_dims, is_filled, is_number, is_exact)
    if i is None:
        return
    value = program.values[i]
    indices = random_indices(program, value.shape[0], int(program.rng.integers(1, 6)))
    name = str(program.rng.choice(["add", "max", "min", "set"]))
    if name == "set":
        indices = np.unique(indices % value.shape[0])
    updates = program.rng.integers(0, 9, (len(indices), *value.shape[1:])) // 2
    mode = str(program.rng.choice(["drop", "clip"]))
    program.add(f"at {name} {indices} {mode}", lambda x: getattr(x.at[indices], name)(
        jnp.asarray(updates, x.dtype), mode=mode), [i], value.bits + 3)


def along(program):
    i = program.pick(has_dims, is_filled, is_exact, is_number)
    if i is not None:
        axis = axis_of(program, program.values[i])
        program.add(f"take along {axis}", lambda x: jnp.take_along_axis(
            x, jnp.argsort(x, axis=axis), axis=axis), [i], program.values[i].bits)


def dynamic(program):
    i = program.pick(has_dims, is_filled)
    j = program.pick(is_integer, lambda v: v.ndim == 0)
    if i is None:
        return
    value = program.values[i]
    sizes = [int(program.rng.integers(1, size + 1)) for size in value.shape]
    axis = axis_of(program, value)

    def starts(x, at):
        return [at if d == axis else jnp.int32(0) for d in range(x.ndim)]
    at = int(program.rng.integers(-1, value.shape[axis] + 1))
    numbers = [i] if j is None else [i, j]
    if program.rng.random() < 0.5:
        program.add(f"dynamic_slice {sizes} {axis}", lambda x, s=at: lax.dynamic_slice(
            x, starts(x, jnp.asarray(s, jnp.int32)), sizes), numbers, value.bits)
    else:
        # Not a reversed part of x, which the CPU backend of JAX 0.10.2 overwrites too early.
        update = program.rng.integers(0, 9, sizes) // 2
        program.add(f"dynamic_update {sizes} {axis}", lambda x, s=at: lax.dynamic_update_slice(
            x, jnp.asarray(update, x.dtype), starts(x, jnp.asarray(s, jnp.int32))), numbers,
            value.bits)


def one_hot(program):
    i = program.pick(is_integer, has_room)
    if i is not None:
        program.add("one_hot", lambda x: jax.nn.one_hot(x, 5), [i], 1)


def draw(program):
    i = program.pick(is_float, is_filled)
    if i is not None:
        seed = int(program.rng.integers(1000))
        name, function = choose(program, {
            "uniform": jax.random.uniform, "normal": jax.random.normal,
            "bernoulli": lambda key, shape, dtype: jax.random.bernoulli(key, 0.5, shape)})
        program.add(f"{name} {seed}", lambda x: x * function(
            jax.random.key(seed), x.shape, x.dtype), [i])


# --- bodies

def mean_of(x):
    return jnp.mean(x.astype(jnp.promote_types(x.dtype, jnp.float32)))


def slice_of(program, value):
    """The value without its first dimension, as bodies of loops see it."""
    return type(value)(value.array[0], value.bits)


def mapped(program):
    i = program.pick(has_dims, is_float, is_filled)
    if i is None:
        return
    body = program.branch([slice_of(program, program.values[i])], 3)
    if body.steps:
        program.add(f"vmap {{\n{body}\n  }}", jax.vmap(lambda x: body.run([x])[-1]), [i])


def scanned(program):
    i = program.pick(has_dims, is_float, is_filled)
    if i is None:
        return
    value = program.values[i]
    row = slice_of(program, value)
    carry = type(value)(jnp.zeros(row.shape, row.dtype), np.inf)
    body = program.branch([carry, type(value)(row.array, np.inf)], 3)
    reverse = bool(program.rng.random() < 0.3)

    def step(c, x):
        result = body.run([c, x])[-1]
        mean = mean_of(result).astype(c.dtype)
        return (c * 0.5 + jnp.tanh(mean) + x * 0.25).astype(c.dtype), result

    if not body.steps:
        return
    program.add(f"scan rows {{\n{body}\n  }}", lambda x: lax.scan(
        step, jnp.zeros_like(x[0]), x, reverse=reverse)[1], [i])
    program.add("scan carry", lambda x: lax.scan(step, jnp.zeros_like(x[0]), x,
                                                 reverse=reverse)[0], [i])


def looped(program):
    i = program.pick(is_float, is_filled)
    j = program.pick(is_integer, lambda v: v.ndim == 0)
    if i is None:
        return
    value = type(program.values[i])(program.values[i].array, np.inf)
    body = program.branch([value], 2)

    def step(_, x):
        return (x * 0.5 + jnp.tanh(mean_of(body.run([x])[-1]))).astype(x.dtype)
    if j is None:
        program.add(f"fori {{\n{body}\n  }}", lambda x: lax.fori_loop(0, 3, step, x), [i])
    else:
        program.add(f"while {{\n{body}\n  }}", lambda x, n: lax.fori_loop(
            0, jnp.clip(n.astype(jnp.int32), 0, 5), step, x), [i, j])


def conditional(program):
    i = program.pick(is_float, is_filled)
    j = program.pick(is_exact, is_filled)
    if i is None or j is None:
        return
    value = program.values[i]
    one, other = [program.branch([value], 2) for _ in range(2)]

    def summed(body):
        return lambda x: (x + jnp.tanh(mean_of(body.run([x])[-1]))).astype(x.dtype)
    program.add(f"cond {{\n{one}\n  }} else {{\n{other}\n  }}", lambda x, p: lax.cond(
        p.ravel()[0] > 0, summed(one), summed(other), x), [i, j])


def recomputed(program):
    i = program.pick(is_float, is_filled)
    if i is None:
        return
    body = program.branch([program.values[i]], 3)
    if body.steps:
        program.add(f"checkpoint {{\n{body}\n  }}",
                    jax.checkpoint(lambda x: body.run([x])[-1]), [i])


def random_place(rng, shape):
    """A function of k: which part of an array the step k of a loop changes or reads. In each
    dimension, the part has one index that moves with k, several of them, or all."""
    kinds = [str(rng.choice(["moving", "several", "whole"], p=[0.5, 0.2, 0.3])) for _ in shape]
    shifts = [int(rng.integers(0, 4)) for _ in shape]
    several = np.asarray(rng.integers(0, 8, int(rng.integers(1, 4))), np.int32)

    def place(k):
        def along(kind, shift, size):
            if kind == "whole":
                return slice(None)
            if kind == "moving":
                return (k + shift) % size
            return (several + k * shift) % size
        return tuple(map(along, kinds, shifts, shape))
    return place, " ".join(f"{kind}+{shift}" for kind, shift in zip(kinds, shifts))


def random_update(rng, shape, count, methods):
    """One branch of a step: changes some of `count` arrays of a shape and returns the others."""
    kind = str(rng.choice(["place", "place", "place", "slice", "return", "exchange", "replace"]))
    to, source = (int(rng.integers(count)) for _ in range(2))
    place, text = random_place(rng, shape)
    method = str(rng.choice(methods))
    other, _ = random_place(rng, shape)
    is_constant = bool(rng.random() < 0.5)

    def update(k, arrays):
        arrays = list(arrays)
        x = arrays[to]
        if kind == "place":
            # One number, because backends may apply several updates of one element in any order.
            number = k % 3 if is_constant else arrays[source].at[other(k)].get().ravel()[0]
            value = jnp.asarray(number, x.dtype)
            arrays[to] = getattr(x.at[place(k)], method)(value)
        elif kind == "slice":
            sizes = [max(1, n // 2) for n in shape]
            part = lax.dynamic_slice(arrays[source], [k % n for n in shape], sizes)
            arrays[to] = lax.dynamic_update_slice(x, part, [(k + 1) % n for n in shape])
        elif kind == "exchange":
            arrays = arrays[1:] + arrays[:1]
        elif kind == "replace":
            arrays[to] = arrays[source] * jnp.asarray(1 if is_constant else 0, x.dtype)
        return tuple(arrays)
    return update, f"{kind} {to} {method} {text} of {source}"


def updated(program):
    """A loop whose steps change parts of the arrays that it carries, each in one of a few ways."""
    i = program.pick(has_dims, is_filled, is_number, is_exact)
    if i is None:
        return
    value, rng = program.values[i], program.rng
    count = int(rng.integers(1, 4))
    form = str(rng.choice(["fori", "while", "scan", "vmap"]))
    # JAX has no gradient for a scatter that multiplies.
    methods = ["set", "add", "max", "min"] + ["multiply"] * (form == "while")
    branches = [random_update(rng, value.shape, count, methods)
                for _ in range(rng.integers(1, 4))]
    steps = int(rng.integers(1, 8))
    is_nested = bool(rng.random() < 0.3)

    def step(k, arrays):
        arrays = lax.switch(k % len(branches), [
            functools.partial(update, k) for update, _ in branches], arrays)
        if is_nested:
            arrays = lax.cond(k % 2 == 0, lambda a: lax.cond(
                k % 4 == 0, lambda a: branches[0][0](k, a), lambda a: a, a), lambda a: a, arrays)
        return arrays

    def run(x):
        arrays = tuple(x + jnp.asarray(n, x.dtype) for n in range(count))
        if form == "while":
            return lax.while_loop(lambda s: s[0] < steps, lambda s: (s[0] + 1, step(s[0], s[1])),
                                  (0, arrays))[1]
        if form == "scan":
            return lax.scan(lambda a, k: (step(k, a), a[0].ravel()[0]), arrays,
                            jnp.arange(steps))[0]
        return lax.fori_loop(0, steps, step, arrays)

    def batched(x):
        pair = jnp.stack([x, x[::-1]])
        return jax.vmap(lambda x, first: lax.fori_loop(
            0, steps, lambda k, a: step(k + first, a), (x,) * count))(pair, jnp.arange(2))
    texts = "; ".join(text for _, text in branches)
    for n in range(count):
        program.add(f"{form} loop {n} of {steps} steps, nested {is_nested}: {texts}",
                    lambda x: (batched if form == "vmap" else run)(x)[n], [i])


OPS = [smooth, smooth, discrete, arithmetic, arithmetic, extreme, comparison, whole, where, convert,
       reshape, transpose, broadcast, flip, strided, pad, concatenate, roll, total, total, of_rows,
       of_rows, ordered, product, product, product, convolution, window, take, scatter, along,
       dynamic, one_hot, draw]
CONTROL = [mapped, scanned, looped, conditional, recomputed, updated]
