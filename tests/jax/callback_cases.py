"""callback_cases.py: Python functions that programs call, on Tessera and on JAX's CPU backend: how
often, with which arguments and in which order they are called, and how their results are used."""
import contextlib
import functools
import gc
import io
import logging
import os
import subprocess
import sys
import threading
import time
import weakref

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax._src.core import Token
from jax.experimental import io_callback
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.config.update("jax_num_cpu_devices", 8)
import cases
from cases import CPU, DEVICES, random, same

CASES = {}


def case(name, *functions_args):
    def register(function):
        CASES[name] = functools.partial(function, *functions_args)
        return function
    return register


def on_meshes(program, *arguments):
    """Like `both` without an order, for `program(tell, mesh)` on a mesh of 4x2 devices."""
    told = []
    for devices in (np.array(jax.devices("cpu")), DEVICES):
        heard = []
        mesh = Mesh(devices.reshape(4, 2), ("x", "y"))
        placed = jax.device_put(arguments, NamedSharding(mesh, P()))
        function = program(lambda *values: heard.append([text(v) for v in values]), mesh)
        result = jax.tree.map(np.asarray, jax.jit(function)(*placed))
        jax.effects_barrier()
        told.append((sorted(heard), result))
    assert told[0][0] == told[1][0], told
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5), told[0][1], told[1][1])
    return told[1][0]


def text(value):
    if isinstance(value, str):
        return value
    return np.array2string(np.asarray(value), precision=4)


def both(program, *arguments, is_ordered=True):
    """Checks that the function `program(tell)` passes the same values to `tell` on both backends
    and returns the same results. Without is_ordered, the order of the calls does not count.
    Returns the values."""
    told = []
    for device in (CPU, None):
        heard = []
        with jax.default_device(device):
            result = jax.jit(program(lambda *values: heard.append([text(v) for v in values])))(
                *arguments)
            result = [np.asarray(leaf) for leaf in jax.tree.leaves(result)]
            jax.effects_barrier()
        told.append((heard if is_ordered else sorted(heard), result))
    assert told[0][0] == told[1][0], told
    for one, other in zip(told[0][1], told[1][1], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    return told[1][0]


def printed(function, *arguments):
    """Returns what the function prints, which must be the same on both backends."""
    texts = []
    for device in (CPU, None):
        with contextlib.redirect_stdout(io.StringIO()) as out, jax.default_device(device):
            jax.block_until_ready(jax.jit(function)(*arguments))
            jax.effects_barrier()
        texts.append(out.getvalue())
    assert texts[0] == texts[1], texts
    return texts[1]


# --- jax.debug

@case("print_formats")
def _():
    def f(x, i):
        jax.debug.print("x {x} i {i:03d} {{}}", x=x, i=i, ordered=True)
        jax.debug.print("a string {}", "that is static", ordered=True)
        jax.debug.print("{}", {"tree": (x[0], i)}, ordered=True)
        return x + 1

    assert "i 007 {}" in printed(f, random(2, 3), 7)


@case("print_dtypes")
def _():
    def f(*arrays):
        for array in arrays:
            jax.debug.print("{}", array, ordered=True)

    types = "bool int8 uint16 int32 uint32 float16 bfloat16 float32".split()
    printed(f, *(np.abs(random(3)).astype(dtype) for dtype in types), np.zeros((0, 2), np.float32))


@case("print_in_loops_and_branches")
def _():
    def f(xs):
        def step(carry, x):
            jax.debug.print("scan {} {}", carry, x, ordered=True)
            lax.cond(x > 0, lambda v: jax.debug.print("large {}", v, ordered=True),
                     lambda v: jax.debug.print("small {}", v, ordered=True), x)
            return carry + x, x * 2

        total, ys = lax.scan(step, 0.0, xs)
        jax.debug.print("total {}", total, ordered=True)

        def body(state):
            jax.debug.print("while {}", state, ordered=True)
            return state + 1

        def count(i, n):
            jax.debug.print("for {} {}", i, n, ordered=True)
            return n * 2

        return ys, lax.while_loop(lambda s: s < 3, body, 0), lax.fori_loop(2, 5, count, 1)

    assert printed(f, random(4)).count("\n") == 4 * 2 + 1 + 3 + 3


@case("calls_in_the_condition_of_a_loop")
def _():
    for is_ordered in (False, True):
        def program(tell):
            def f(limit):
                def condition(state):
                    jax.debug.callback(tell, state, ordered=is_ordered)
                    return state < limit

                return lax.while_loop(condition, lambda s: s + 2, 1)
            return f

        assert both(program, 6) == [["1"], ["3"], ["5"], ["7"]]

        def nested(tell, is_ordered=is_ordered):
            def f(limit):
                def condition(state):
                    jax.debug.callback(tell, state[0], ordered=is_ordered)
                    return state[0] < limit

                def body(state):
                    jax.debug.callback(tell, state[1], ordered=is_ordered)
                    inner, _ = lax.while_loop(
                        lambda s: lax.cond(s[0] % 2 == 0,
                                           lambda: (io_callback(tell_and_true(tell),
                                                                jax.ShapeDtypeStruct((), bool),
                                                                s[0], ordered=is_ordered)),
                                           lambda: False),
                        lambda s: (s[0] + 1, s[1]), (state[0], 0))
                    return inner + 1, state[1] * 2

                return lax.scan(lambda c, x: (c + lax.while_loop(condition, body, (0, x))[0], x),
                                0, jnp.arange(3))
            return f

        both(nested, 6, is_ordered=is_ordered)


def tell_and_true(tell):
    def function(value):
        tell(value)
        return np.bool_(True)
    return function


@case("under_derivatives")
def _():
    def program(tell):
        def loss(x):
            def layer(v):
                jax.debug.callback(tell, v)
                return jnp.tanh(v)

            return jnp.sum(jax.checkpoint(layer)(layer(x)))
        return jax.value_and_grad(loss)

    both(program, random(3), is_ordered=False)

    def cotangents(tell):
        @jax.custom_vjp
        def seen(x):
            return x

        def backward(_, ct):
            jax.debug.callback(tell, ct)
            return (ct,)

        seen.defvjp(lambda x: (x, None), backward)
        return jax.grad(lambda xs: lax.scan(lambda c, x: (seen(c) * x, None), 1.0, xs)[0])

    assert len(both(cotangents, random(3))) == 3


@case("under_vmap")
def _():
    def program(tell):
        def f(row):
            jax.debug.callback(tell, row, jnp.sum(row))
            return lax.cond(row[0] > 0, lambda: 1, lambda: 2)
        return jax.vmap(f)

    assert len(both(program, random(4, 2), is_ordered=False)) == 4


# --- pure_callback

def numpy_sin(x):
    return np.sin(np.asarray(x))


def like(x):
    return jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x))


@case("pure_values")
def _():
    x = random(3, 4)
    same(lambda v: jax.pure_callback(numpy_sin, like(v), v) * 2, x)
    same(lambda v: jax.pure_callback(lambda a: (np.asarray(a).sum(1), {"t": np.asarray(a).T}),
                                     (jax.ShapeDtypeStruct((3,), np.float32),
                                      {"t": jax.ShapeDtypeStruct((4, 3), np.float32)}), v), x)
    same(lambda: jax.pure_callback(lambda: np.arange(5), jax.ShapeDtypeStruct((5,), np.int32)))
    same(lambda v: jax.pure_callback(lambda a: a, like(v), v), np.zeros((0, 3), np.float32))
    same(lambda v: jax.pure_callback(lambda a: 3 * a, like(v), v), 2)  # a Python number
    for dtype in (np.bool_, np.int8, np.uint8, np.int16, np.uint32, np.float16, jnp.bfloat16):
        same(lambda v: jax.pure_callback(lambda a: np.flip(np.asarray(a)), like(v), v),
             np.abs(x).astype(dtype))


@case("pure_values_of_64_bits")
def _():
    with jax.enable_x64(True):
        for dtype in (np.float64, np.int64, np.uint64):
            same(lambda v: jax.pure_callback(lambda a: np.asarray(a) * 3, like(v), v) + 1,
                 np.arange(5).astype(dtype))


@case("pure_under_vmap")
def _():
    x, y = random(4, 3), random(3, seed=1)
    for method in ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all"):
        def f(a, b):
            return jax.pure_callback(lambda u, v: np.asarray(u) + np.asarray(v), like(a), a, b,
                                     vmap_method=method)

        same(jax.vmap(f, (0, None)), x, y)
        same(jax.vmap(jax.vmap(f), (None, 0)), x, random(2, 4, 3, seed=2))


@case("pure_in_loops_and_derivatives")
def _():
    @jax.custom_jvp
    def sine(x):
        return jax.pure_callback(numpy_sin, like(x), x, vmap_method="sequential")

    sine.defjvp(lambda primals, tangents: (sine(*primals), jnp.cos(primals[0]) * tangents[0]))
    x = random(5)
    same(lambda xs: lax.scan(lambda c, v: (sine(c) + v, sine(v)), 0.5, xs), x)
    same(lambda v: lax.while_loop(lambda s: sine(s) < 0.9, lambda s: s + 0.1, v), np.float32(0))
    same(lambda v: lax.cond(v[0] > 0, sine, lambda u: u, v), x)
    same(jax.grad(lambda v: jnp.sum(sine(sine(v)))), x)
    same(jax.grad(lambda xs: lax.scan(lambda c, v: (sine(c) * v, None), 0.5, xs)[0]), x)
    same(jax.vmap(jax.grad(sine)), x)
    same(jax.grad(lambda v: jnp.sum(jax.checkpoint(lambda u: sine(u) * u)(v))), x)


@case("pure_is_left_out_if_nothing_needs_it")
def _():
    calls = []

    def f(x):
        jax.pure_callback(lambda v: calls.append(1) or v, like(x), x)
        return x + 1

    np.testing.assert_array_equal(jax.jit(f)(np.arange(3)), [1, 2, 3])
    assert not calls


# --- io_callback

@case("io_counts")
def _():
    def program(tell, is_ordered=True):
        count = [0]

        def next_number(x):
            count[0] += 1
            tell(x)
            return np.int32(count[0])

        def f(xs):
            number = functools.partial(io_callback, next_number,
                                       jax.ShapeDtypeStruct((), np.int32), ordered=is_ordered)
            first = number(xs[0])
            _, numbers = lax.scan(lambda c, x: (c, number(x) * 10), 0, xs)
            number(xs[1])  # called although nothing needs its result
            return (first, numbers) if is_ordered else None
        return f

    assert len(both(program, random(3))) == 5
    both(functools.partial(program, is_ordered=False), random(3), is_ordered=False)


@case("io_is_neither_merged_nor_repeated")
def _():
    def program(tell):
        count = [0]

        def draw():
            count[0] += 1
            tell(count[0])
            return np.float32(count[0])

        def f(x):
            a, b = (io_callback(draw, jax.ShapeDtypeStruct((), np.float32), ordered=True)
                    for _ in range(2))
            return a, b, x * a
        return f

    assert both(program, random(2)) == [["1"], ["2"]]


@case("ordered_calls_of_several_programs")
def _():
    heard = []
    tell = jax.jit(lambda x: io_callback(lambda v: heard.append(int(v)), None, x, ordered=True))
    show = jax.jit(lambda x: jax.debug.callback(lambda v: heard.append(-int(v)), x, ordered=True))
    for i in range(100):
        tell(i)
        show(i)
    jax.effects_barrier()
    assert heard == [sign * i for i in range(100) for sign in (1, -1)]


# --- devices

@case("of_sharded_arrays")
def _():
    def program(tell, mesh):
        def f(v):
            v = lax.with_sharding_constraint(v, NamedSharding(mesh, P("x", "y")))
            jax.debug.callback(tell, v, ordered=False)
            number = io_callback(lambda a: np.float32(a[0, 0]),
                                 jax.ShapeDtypeStruct((), np.float32), v)
            return jax.pure_callback(numpy_sin, like(v), v) + v + number
        return f

    assert len(on_meshes(program, random(8, 6))) == 1


@case("in_shard_map")
def _():
    def program(tell, mesh):
        @functools.partial(jax.shard_map, mesh=mesh, in_specs=(P("x"), P()),
                           out_specs=(P("x"), P(("x", "y"))), check_vma=False)
        def f(tile, scalar):
            jax.debug.callback(functools.partial(tell, "all"), tile, scalar)
            jax.debug.callback(functools.partial(tell, "same"), scalar)
            jax.debug.callback(functools.partial(tell, "none"))
            number = io_callback(lambda v: np.float32(np.sum(v)),
                                 jax.ShapeDtypeStruct((), np.float32), tile)
            sine = jax.pure_callback(numpy_sin, like(tile), tile)
            return sine, jnp.reshape(number, (1,))
        return f

    told = on_meshes(program, np.arange(24, dtype=np.float32).reshape(8, 3), 5.0)
    assert [[each[0] for each in told].count(kind) for kind in ("all", "same", "none")] == [8] * 3


@case("of_some_devices")
def _():
    """Branches and loops that devices leave at different times."""
    def program(tell, mesh):
        @functools.partial(jax.shard_map, mesh=mesh, in_specs=P("x"), out_specs=P(("x", "y")),
                           check_vma=False)
        def f(tile):
            x, y = lax.axis_index("x"), lax.axis_index("y")
            first = functools.partial(tell, "first")
            lax.cond((x == 0) & (y == 0), lambda: jax.debug.callback(first, tile), lambda: None)

            def number(kind):
                return lambda v: io_callback(lambda a: (tell(kind, a), np.float32(np.sum(a)))[1],
                                             jax.ShapeDtypeStruct((), np.float32), v)

            def step(carry, row):
                chosen = lax.switch(x - 1, [number("one"), lambda v: jnp.sum(v) * 2, number("two")],
                                    row + y)
                return carry + chosen, chosen

            total, rows = lax.scan(step, 0.0, tile)

            def condition(state):
                jax.debug.callback(functools.partial(tell, "condition"), x, y, state)
                return state < 2 * x + y

            def body(state):
                jax.debug.callback(functools.partial(tell, "body"), x, y, state)
                inner = lax.while_loop(
                    lambda n: n < state, lambda n: n + lax.cond(
                        n % 2 == 0, lambda: io_callback(lambda a: (tell("even", a), np.int32(1))[1],
                                                        jax.ShapeDtypeStruct((), np.int32), n),
                        lambda: 1), y)
                return state + 1 + 0 * inner

            ended = lax.while_loop(condition, body, 0)
            return jnp.stack([total, ended.astype(np.float32), jnp.sum(rows)])
        return f

    told = on_meshes(program, random(8, 3))
    kinds = [each[0] for each in told]
    assert kinds.count("first") == 1 and kinds.count("one") == 8 and kinds.count("two") == 4, kinds
    assert kinds.count("body") == sum(2 * x + y for x in range(4) for y in range(2))
    assert kinds.count("condition") == kinds.count("body") + 8


@case("ordered_in_shard_map")
def _():
    heard = []
    mesh = Mesh(DEVICES, ("x",))

    @jax.jit
    @functools.partial(jax.shard_map, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    def f(tile):
        io_callback(lambda v: heard.append(("first", int(v[0]))), None, tile, ordered=True)
        io_callback(lambda v: heard.append(("second", int(v[0]))), None, tile, ordered=True)
        return tile + 1

    np.testing.assert_array_equal(f(np.arange(8)), np.arange(1, 9))
    jax.effects_barrier()
    assert heard == [(kind, i) for kind in ("first", "second") for i in range(8)], heard


# --- mistakes

# JAX raises ValueError if it has called the program before.
CALL_ERRORS = (jax.errors.JaxRuntimeError, ValueError)


@case("exceptions")
def _():
    def fails(x):
        if x > 2:
            raise ValueError("more than two")
        return np.asarray(x)

    f = jax.jit(lambda x: jax.pure_callback(fails, like(x), x) + 1)
    assert float(f(1.0)) == 2
    logged = []
    logger = logging.getLogger("jax._src.callback")
    logger.addFilter(logged.append)  # append() returns None, so no record passes
    for _ in range(3):
        try:
            f(3.0)
        except CALL_ERRORS as error:
            found = str(error)
        assert "ValueError: more than two" in found and "callback_cases.py" in found, found
    assert float(f(2.0)) == 3
    logger.removeFilter(logged.append)
    assert [record.getMessage() for record in logged] == 3 * ["jax.pure_callback failed"], logged
    assert "more than two" in logged[0].exc_text

    effect = jax.jit(lambda x: jax.debug.callback(fails, x))
    try:
        effect(3.0)
        raise AssertionError("no error")
    except CALL_ERRORS as error:
        assert "more than two" in str(error)
    jax.effects_barrier()
    for result, found in ((np.zeros(3, np.float32), "Incorrect output shape"),
                          (np.int32(1), "Incorrect output dtype"), ((), "Mismatched number")):
        try:
            jax.jit(lambda x: jax.pure_callback(lambda _: result, like(x), x))(1.0
                                                                             ).block_until_ready()
            raise AssertionError("no error")
        except jax.errors.JaxRuntimeError as error:
            assert found in str(error), error


# --- lives

@case("computing_inside")
def _():
    f = jax.jit(lambda x: jax.pure_callback(lambda v: jnp.sin(v) * 2, like(x), x) + 1)
    x = random(4)
    np.testing.assert_allclose(f(x), np.sin(x) * 2 + 1, rtol=1e-6)
    other = jax.device_put(x, DEVICES[0])
    inner = jax.jit(lambda a: a * 3)
    g = jax.jit(lambda v: jax.pure_callback(lambda u: np.asarray(inner(other)) + u, like(v), v))
    np.testing.assert_allclose(g(x), x * 3 + x, rtol=1e-6)


@case("waiting_for_a_later_program")
def _():
    later, called = [], threading.Event()

    def function(x):
        called.set()
        while not later:
            time.sleep(0.01)
        return np.asarray(later[0])

    x = jax.device_put(np.float32(2), DEVICES[0])
    errors = []

    def run():
        try:
            jax.jit(lambda v: jax.pure_callback(function, like(v), v))(x)
        except jax.errors.JaxRuntimeError as error:
            errors.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    assert called.wait(60)
    later.append(jax.jit(lambda v: v * 3)(x))
    thread.join()
    assert "waits for a program that runs after" in errors[0], errors
    assert float(later[0] + 0) == 6  # JAX remembers that reading the array itself failed


@case("functions_end_with_their_programs")
def _():
    class Held:
        def __call__(self, x):
            return np.asarray(x) + 1

    def run():
        function = Held()
        f = jax.jit(lambda x: jax.pure_callback(function, like(x), x))
        results = [f(float(i)) for i in range(3)]
        return weakref.ref(function), results

    function, results = run()
    jax.clear_caches()
    gc.collect()
    assert [float(r) for r in results] == [1, 2, 3]
    gc.collect()
    assert function() is None


@case("tokens")
def _():
    token = jax.jit(jax.lax.create_token)(1.0)
    assert isinstance(token, Token)
    x, after = jax.jit(lambda v, t: (v, t))(jnp.arange(3), token)
    np.testing.assert_array_equal(x, [0, 1, 2])
    assert isinstance(after, Token)
    assert isinstance(jax.jit(lambda: jax.lax.after_all(token, after))(), Token)
    assert isinstance(jax.jit(lambda: token)(), Token)


WITHOUT_CPU = """
import os, sys
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:int(sys.argv[1])])
import jax, numpy as np, jax.numpy as jnp
jax.debug.print("outside {}", jnp.arange(3))
y = jnp.arange(4.0)
inner = jax.jit(lambda a: a * 2)
def function(x):
    print("called with", type(x).__module__)
    return np.asarray(inner(jnp.sin(x) + y))
@jax.jit
def f(x):
    jax.debug.print("inside {}", x, ordered=True)
    return jax.pure_callback(function, jax.ShapeDtypeStruct((4,), np.float32), x)
print(np.abs(np.asarray(f(y)) - 2 * (np.sin(np.arange(4.0)) + np.arange(4.0))).max() < 1e-6)
jax.debug.print("at the end {}", y)
"""


@case("without_the_cpu_backend")
def _():
    for cores in ("1", "2"):
        run = subprocess.run(
            [sys.executable, "-c", WITHOUT_CPU, cores], capture_output=True, text=True, timeout=120,
            env={**os.environ, "JAX_PLATFORMS": "tessera"})
        assert run.returncode == 0, run.stderr[-2000:]
        assert run.stdout.splitlines() == [
            "outside [0 1 2]", "inside [0. 1. 2. 3.]", "called with numpy", "True",
            "at the end [0. 1. 2. 3.]"], run.stdout + run.stderr


if __name__ == "__main__":
    cases.main(CASES)
