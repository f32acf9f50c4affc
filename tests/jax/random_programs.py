"""random_programs.py [--seed S] [--cases N] [--show]: random programs in JAX on Tessera.

Each one is compared with JAX's CPU backend, and its bits on a mesh of eight devices, with random
shardings of inputs and values, with those on one device. Half of the programs are gradients. With
JAX_ENABLE_X64=1 there are f64 and i64 too. Prints the seeds and the programs that differ."""
import argparse
import sys
import traceback

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

from random_ops import CONTROL, OPS

CPU = jax.devices("cpu")[0]
MESH = Mesh(np.array(jax.devices("tessera")[:8]).reshape(4, 2), ("a", "b"))
EPSILON = {"float32": 2e-5, "bfloat16": 4e-2, "float16": 5e-3, "float64": 1e-12}
LARGEST = 64.0  # floats are scaled below this, so that errors stay small
SIZES = (1, 2, 3, 4, 6, 8, 16)


class Value:
    """A concrete value, and how many bits its elements need if no rounding has occurred."""

    def __init__(self, array, bits):
        self.array = array
        self.bits = bits
        self.shape, self.dtype, self.ndim = array.shape, array.dtype, array.ndim

    def is_float(self):
        return jnp.issubdtype(self.dtype, jnp.floating)

    def is_exact(self):
        return not self.is_float() or self.bits <= jnp.finfo(self.dtype).nmant - 1


class Program:
    """The values of inputs and steps. A step is a function of earlier values, given by number."""

    def __init__(self, rng, inputs, depth=0):
        self.rng, self.depth = rng, depth
        self.values = list(inputs)
        self.num_inputs = len(inputs)
        self.steps = []  # (name, function, numbers)

    def pick(self, *accepted):
        """The number of a random value that passes all tests, recent ones first; or None."""
        fit = [i for i, value in enumerate(self.values) if all(test(value) for test in accepted)]
        if not fit:
            return None
        late = [i for i in fit if i >= len(self.values) - 3]
        return int(self.rng.choice(late if late and self.rng.random() < 0.6 else fit))

    def add(self, name, function, numbers, bits=np.inf):
        arrays = [self.values[i].array for i in numbers]
        result = function(*arrays)
        if result.size > 4096:
            return None
        self.values.append(Value(result, bits))
        self.steps.append((name, function, numbers))
        if jnp.issubdtype(result.dtype, jnp.floating) and result.size:
            most = float(jnp.max(jnp.abs(result)).astype(jnp.float32))
            if np.isfinite(most) and most > LARGEST:
                factor = 2.0 ** -np.ceil(np.log2(most / 8))
                self.add(f"scale {factor:g}", lambda x: x * jnp.asarray(factor, x.dtype),
                         [len(self.values) - 1], bits)
        return len(self.values) - 1

    def grow(self, count):
        for _ in range(count * 4):
            if len(self.steps) >= count:
                break
            table = CONTROL if self.depth == 0 and self.rng.random() < 0.15 else OPS
            table[self.rng.integers(len(table))](self)
        return self

    def branch(self, inputs, count):
        """A program with values of its own, for example for the body of a loop."""
        return Program(self.rng, inputs, self.depth + 1).grow(count)

    def results(self):
        """The numbers of the values that no step reads; if there is none, that of the last one."""
        read = {i for _, _, numbers in self.steps for i in numbers}
        unread = [i for i in range(self.num_inputs, len(self.values)) if i not in read]
        return unread or [len(self.values) - 1]

    def run(self, inputs, constrain=None):
        values = list(inputs)
        for _, function, numbers in self.steps:
            result = function(*[values[i] for i in numbers])
            values.append(constrain(len(values), result) if constrain else result)
        return values

    def __str__(self):
        lines = [f"  %{i} = input {v.dtype.name}{list(v.shape)}"
                 for i, v in enumerate(self.values[:self.num_inputs])]
        for i, (name, _, numbers) in enumerate(self.steps, self.num_inputs):
            value = self.values[i]
            operands = ", ".join(f"%{number}" for number in numbers)
            lines.append(f"  %{i} = {name}({operands}): {value.dtype.name}{list(value.shape)}")
        return "\n".join(lines)


def random_input(rng):
    shape = tuple(int(rng.choice(SIZES)) for _ in range(rng.choice([0, 1, 2, 2, 3, 3, 4])))
    while np.prod(shape) > 1024:
        shape = shape[1:]
    wide = ["float64"] * 6 + ["int64"] if jax.config.jax_enable_x64 else []
    dtype = rng.choice(["float32"] * 6 + ["int32", "bool", "bfloat16", "uint32"] + wide)
    quarters = rng.integers(-16, 17, shape)
    array = {"bool": lambda: quarters > 0, "int32": lambda: quarters // 2,
             "int64": lambda: quarters // 2,
             "uint32": lambda: np.abs(quarters)}.get(dtype, lambda: quarters / 4)()
    return Value(jnp.asarray(array, jnp.dtype(dtype)), 5)


def random_spec(rng, shape):
    axes = list(rng.permutation(["a", "b"]))
    spec = [None] * len(shape)
    for axis in axes:
        dim = int(rng.integers(len(shape) + 1))
        if dim < len(shape) and spec[dim] is None and shape[dim] % MESH.shape[axis] == 0:
            spec[dim] = str(axis)
    return P(*spec)


def function_of(program, rng):
    """The program as a function of its inputs and, half of the time, its gradient."""
    results = program.results()
    floats = [i for i in results if program.values[i].is_float()]
    wrt = [i for i, value in enumerate(program.values[:program.num_inputs]) if value.is_float()]
    can_differ = not any(name.startswith("while") for name, _, _ in program.steps)
    if rng.random() < 0.5 or not (floats and wrt and can_differ):
        return "values", lambda inputs, constrain=None: [
            program.run(inputs, constrain)[i] for i in results]
    weights = {i: rng.integers(-4, 5, program.values[i].shape) / 4 for i in floats}

    def loss(chosen, inputs, constrain):
        for i, array in zip(wrt, chosen):
            inputs = [*inputs[:i], array, *inputs[i + 1:]]
        values = program.run(inputs, constrain)
        kind = jnp.result_type(jnp.float32, *(values[i].dtype for i in floats))
        return sum(jnp.sum(values[i].astype(kind) * weights[i]) for i in floats)

    return "gradient", lambda inputs, constrain=None: jax.grad(loss)(
        [inputs[i] for i in wrt], list(inputs), constrain)


def difference(found, wanted, tolerance, scale):
    """Describes how two results differ; empty if they agree within rounding."""
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return f"{found.dtype}{found.shape}, wanted {wanted.dtype}{wanted.shape}"
    name = found.dtype.name
    found, wanted = np.asarray(found), np.asarray(wanted)
    if name not in EPSILON:
        return "" if np.array_equal(found, wanted) else f"{found}, wanted {wanted}"
    found, wanted = found.astype(np.float64), wanted.astype(np.float64)
    tolerance = max(tolerance, EPSILON[name])
    if np.allclose(found, wanted, rtol=tolerance, atol=tolerance * scale, equal_nan=True):
        return ""
    worst = np.nanmax(np.abs(found - wanted)) if found.size else 0
    return f"{name}: differs by {worst:.3g} at scale {scale:.3g}\n{found}\nwanted\n{wanted}"


def check(seed, show):
    """Describes what is wrong with the program of this seed; empty if nothing is."""
    rng = np.random.default_rng(seed)
    with jax.default_device(CPU):
        program = Program(rng, [random_input(rng) for _ in range(rng.integers(1, 4))])
        program.grow(int(rng.integers(3, 10)))
        kind, function = function_of(program, rng)
        inputs = [value.array for value in program.values[:program.num_inputs]]
        wanted = jax.jit(function)(inputs)
    specs = [random_spec(rng, value.shape) for value in program.values]
    is_constrained = rng.random(len(specs)) < 0.3
    text = f"seed {seed}, {kind}:\n{program}"
    if show:
        print(text, *(f"  %{i}: {spec}" for i, spec in enumerate(specs)
                      if i < program.num_inputs or is_constrained[i]), sep="\n")
    inputs = [np.asarray(array) for array in inputs]
    one = jax.jit(function)([jax.device_put(array, MESH.devices.flat[0]) for array in inputs])
    floats = [np.abs(np.asarray(value.array, np.float64)) for value in program.values
              if value.is_float() and value.array.size]
    scale = max([1.0, *(float(np.max(array[np.isfinite(array)], initial=0)) for array in floats)])
    # The gradient of an input adds up terms from all elements.
    scale *= 16 if kind == "gradient" else 1
    coarsest = max([0, *(EPSILON[value.dtype.name] for value in program.values
                         if value.is_float())])
    for found, other in zip(one, wanted):
        if problem := difference(found, other, coarsest, scale):
            return f"{text}\n  {problem}"

    def constrain(i, value):
        sharding = NamedSharding(MESH, specs[i])
        return jax.lax.with_sharding_constraint(value, sharding) if is_constrained[i] else value

    placed = [jax.device_put(array, NamedSharding(MESH, spec))
              for array, spec in zip(inputs, specs)]
    split = jax.jit(lambda inputs: function(inputs, constrain))(placed)
    for found, other in zip(split, one):
        if np.asarray(found).tobytes() != np.asarray(other).tobytes():
            return f"{text}\n  other bits on the mesh:\n{found}\none device:\n{other}"
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=20)
    parser.add_argument("--show", action="store_true", help="print each program before it runs")
    args = parser.parse_args()
    print(f"random_programs.py --seed {args.seed} --cases {args.cases}")
    num_bad = 0
    for seed in range(args.seed, args.seed + args.cases):
        try:
            problem = check(seed, args.show)
        except Exception:  # whatever it is, try the other programs too
            problem = f"seed {seed}: {traceback.format_exc(limit=-3)}"
        if problem:
            num_bad += 1
            print(problem, flush=True)
    print(f"{args.cases} programs, {num_bad} differ")
    return 1 if num_bad else 0


if __name__ == "__main__":
    sys.exit(main())
