"""library_cases.py: small programs for problems that the tests of libraries on JAX found."""
import functools
import os
import pathlib
import tempfile

FOLDER = tempfile.TemporaryDirectory()
os.environ["TESSERA_SHOW"] = FOLDER.name

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.experimental.compute_on import compute_on2
from jax.experimental.shard_alike import shard_alike
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

import cases
from cases import random, same

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


@case
def options_of_the_compiler():
    """The compile options of XLA are accepted; any other one is an error."""
    lowered = jax.jit(lambda x: x + 1).lower(1.0)
    lowered.compile({"xla_embed_ir_in_executable": True, "exec_time_optimization_effort": 0.5})
    try:
        lowered.compile({"xla_embed_ir_in_executable": False, "invalid_key": "value"})
    except jax.errors.JaxRuntimeError as error:
        text = str(error)
        assert text.startswith("INVALID_ARGUMENT: "), text
        assert "No such compile option: 'invalid_key'" in text and "cure:" in text, text
        return
    raise AssertionError("invalid_key is taken")


@case
def singular_values_that_are_equal():
    """Orthogonal matrices, and matrices of low rank plus a multiple of the identity."""
    with jax.enable_x64(True):
        generator = np.random.RandomState(0)
        for n in (2, 7, 20):
            q = np.linalg.qr(generator.standard_normal((50, n, n)))[0]
            low = generator.standard_normal((50, n, 2))
            for x in (q, 30 * np.eye(n) + low @ low.swapaxes(1, 2)):
                u, s, vt = jax.jit(lambda x: jnp.linalg.svd(x, full_matrices=False))(x)
                np.testing.assert_allclose(s, np.linalg.svd(x)[1], rtol=1e-14)
                np.testing.assert_allclose((u * s[:, None]) @ vt, x, atol=1e-12)


@case
def scans_with_counters_of_64_bits():
    """They are compiled as scans, whose slices are read and written in place."""
    def scan(x, reverse=False):
        return lax.scan(lambda c, y: (c * 0.5 + y, (c, y[0])), x[0], x, reverse=reverse)

    def backwards(x):
        return scan(x, reverse=True)

    def gradient(x):
        return jax.grad(lambda x: jnp.sum(jnp.sin(scan(x)[0])))(x)

    def loop(x):
        return lax.fori_loop(0, 7, lambda i, c: c.at[i].add(jnp.sum(x[i]) + i), jnp.zeros(7))

    def part(x):  # not all slices, and not in order
        return lax.fori_loop(2, 6, lambda i, c: c + x[i] * x[6 - i] + x[(i * 3) % 7], x[0])

    with jax.enable_x64(True):
        for function in (scan, backwards, gradient):
            jax.jit(function).lower(random(7, 3)).compile()
            text = max(pathlib.Path(FOLDER.name).glob("*.txt")).read_text()
            assert "scan[" in text and "dynamic_" not in text and "while[" not in text, text
        for function in (scan, backwards, gradient, loop, part):
            same(function, random(7, 3))


@case
def arrays_that_are_sharded_alike():
    """Also pairs of which only one array is a result, and constants."""
    mesh = jax.make_mesh((2, 4), ("x", "y"))
    x = jax.device_put(random(8, 4), NamedSharding(mesh, P("x", "y")))
    y = random(8, 4, seed=1)
    programs = {
        "both": lambda alike, x, y: alike(x * 2, y),
        "constant": lambda alike, x, y: alike(x, jnp.arange(32.0).reshape(8, 4))[1],
        "unused": lambda alike, x, y: alike(jnp.exp(x), y + 1)[1],
        "complex": lambda alike, x, y: alike(x + 1j, y * 1j),
        "loop": lambda alike, x, y: lax.fori_loop(0, 3, lambda i, c: alike(x, c * x + i)[1], y),
    }
    for name, program in programs.items():
        wanted = jax.tree.leaves(program(lambda *both: both, np.asarray(x), y))
        found = jax.tree.leaves(jax.jit(functools.partial(program, shard_alike))(x, y))
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(one, other)
            assert one.sharding.is_equivalent_to(x.sharding, 2), (name, one.sharding)


@case
def pieces_of_several_lengths_for_all_devices():
    """ragged_all_to_all, also in groups of devices and with several pieces for each device."""
    def exchanged(rows, old, starts, sizes, places):  # the result of one group, device by device
        count, pieces = starts.shape
        result = old.copy()
        for source, piece in np.ndindex(count, pieces):
            target = piece * count // pieces
            start, size, place = (x[source, piece] for x in (starts, sizes, places))
            result[target, place:place + size] = rows[source, start:start + size]
        return result

    generator = np.random.RandomState(0)
    mesh = Mesh(jax.devices()[:4], "x")
    for groups, pieces in (([[0, 1, 2, 3]], 4), ([[0, 1, 2, 3]], 8), ([[0, 2], [1, 3]], 2)):
        width = len(groups[0])
        rows, old = random(4, 9, 2), random(4, 20, 2, seed=1)
        starts, sizes = generator.randint(0, 6, (2, 4, pieces)).astype(np.int32)
        sizes //= 2
        places, received = np.zeros_like(starts), np.zeros_like(starts)
        for group in groups:
            for target in range(width):
                end = 0
                for source in group:
                    for piece in range(target * pieces // width, (target + 1) * pieces // width):
                        places[source, piece] = end
                        end += sizes[source, piece]
        wanted = np.empty_like(old)
        for group in groups:
            wanted[group] = exchanged(*(x[group] for x in (rows, old, starts, sizes, places)))

        @jax.jit
        @functools.partial(jax.shard_map, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
        def found(*arguments):
            return lax.ragged_all_to_all(
                *(x[0] for x in arguments), axis_name="x",
                axis_index_groups=groups if len(groups) > 1 else None)[None]

        with jax.numpy_rank_promotion("raise"):
            result = found(rows, old, starts, sizes, places, received)
        np.testing.assert_array_equal(result, wanted)


@case
def activations_in_the_memory_of_the_host():
    """Arrays that checkpoints, moves and functions put into host memory."""
    policy = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[], names_which_can_be_offloaded=["hidden"],
        offload_src="device", offload_dst="pinned_host")

    @functools.partial(jax.checkpoint, policy=policy)
    def layer(x, w):
        return jnp.cos(checkpoint_name(jnp.sin(x @ w), "hidden"))

    def loss(x, ws):
        return jnp.sum(lax.scan(lambda c, w: (layer(c, w), None), x, ws)[0])

    def moved(x):
        there = jax.device_put(x, jax.memory.Space.Host)
        return jax.device_put(there, jax.memory.Space.Device) * 2

    on_host = compute_on2(lambda x: jnp.sin(x) * 2, compute_type="device_host",
                          out_memory_spaces=jax.memory.Space.Host)
    same(jax.grad(loss, (0, 1)), random(3, 4), random(2, 4, 4, seed=1))
    same(moved, random(3, 4))
    x = random(3, 4)
    np.testing.assert_allclose(jax.jit(on_host)(x), np.sin(x) * 2, rtol=1e-6)


@case
def factorisations_that_are_exported():
    """Exported for any number of matrices; the results are those of the program."""
    programs = {"eigh": jnp.linalg.eigh, "svd": jnp.linalg.svd, "solve": jnp.linalg.solve,
                "thin": lambda x: jnp.linalg.svd(x, full_matrices=False), "lu": lax.linalg.lu}
    square = random(5, 4, 4) + 4 * np.eye(4, dtype=np.float32)
    arguments = {"solve": (square, random(5, 4, 2)), "thin": (random(5, 4, 3),),
                 "svd": (random(5, 3, 4),)}
    for name, program in programs.items():
        for part in (1, 1j):
            given = [x * part for x in arguments.get(name, (square,))]
            forms = jax.export.symbolic_args_specs(given, "b, ...")
            found = jax.export.export(jax.jit(program))(*forms).call(*given)
            jax.tree.map(np.testing.assert_array_equal, found, jax.jit(program)(*given))


@case
def inspected_shardings():
    """The callback gets the shardings that partitioning chose, once per program, also in loops and
    derivatives."""
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("x", "y"))
    seen = []

    def watched(x):
        jax.debug.inspect_array_sharding(x, callback=seen.append)
        return x

    def expect(specs, function, spec):
        x = jax.device_put(random(8, 16), NamedSharding(mesh, spec))
        seen.clear()
        jax.block_until_ready(jax.jit(function)(x))
        assert len(seen) == len(specs), (seen, spec)
        for found, wanted in zip(seen, specs):
            assert isinstance(found, NamedSharding), found
            assert found.is_equivalent_to(NamedSharding(mesh, wanted), 2), (found, wanted)

    for spec in (P("x", "y"), P("y", "x"), P(None, ("y", "x")), P(("x", "y")), P("y"), P()):
        transposed = P(*reversed((*spec, None, None)[:2]))
        expect([spec], lambda x: jnp.sin(watched(x)), spec)
        expect([spec, transposed], lambda x: jnp.sin(watched(watched(x).T * 2)), spec)
        expect([spec], jax.grad(lambda x: jnp.sum(watched(x) ** 2)), spec)
        expect([spec], lambda x: lax.scan(lambda c, _: (watched(c) * 2, None), x, None,
                                          length=3)[0], spec)
    tiles = jax.shard_map(lambda x: watched(x) * 2, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    expect([P()], tiles, P("x"))
    jax.jit(watched)(np.float32(1))
    assert seen[-1].is_fully_replicated, seen


@case
def memories_of_the_host():
    """Arrays name the memory in which they were requested; programs read them from there."""
    mesh = jax.make_mesh((4, 2), ("x", "y"))
    on_device = NamedSharding(mesh, P("x"))
    x = jax.device_put(random(8, 4), on_device)
    for kind in ("pinned_host", "unpinned_host"):
        on_host = on_device.with_memory_kind(kind)
        programs = {
            "put": lambda: jax.device_put(x, on_host),
            "result": lambda: jax.jit(lambda x: x * 1, out_shardings=on_host)(x),
            "argument": lambda: jax.jit(lambda x: x * 1, out_shardings=on_host)(
                jax.device_put(x, on_host)),
        }
        # JAX forgets the other kind if only the program itself names it.
        if kind == "pinned_host":
            programs["within"] = lambda: jax.jit(lambda x: jax.device_put(x * 1, on_host))(x)
            programs["donated"] = lambda: jax.jit(
                lambda x: jax.device_put(jax.device_put(x, on_device) * 1, on_host),
                donate_argnums=0)(jax.device_put(x + 0, on_host))
        for name, program in programs.items():
            found = program()
            assert found.sharding.is_equivalent_to(on_host, 2), (name, found.sharding)
            assert {s.data.sharding.memory_kind for s in found.addressable_shards} == {kind}, name
            np.testing.assert_array_equal(found, x)
        back = jax.jit(lambda x: jax.device_put(x, on_device) + 1)(jax.device_put(x, on_host))
        assert back.sharding.memory_kind == "device", back.sharding
    assert [m.kind for m in jax.devices()[0].addressable_memories()] == [
        "device", "pinned_host", "unpinned_host"]


@case
def states_of_optimisers_on_the_host():
    """Steps move the states to the device and back. Offloading residuals to the host changes no
    bit."""
    device = jax.devices()[0]
    on_host, on_device = (jax.sharding.SingleDeviceSharding(device, memory_kind=kind)
                          for kind in ("pinned_host", "device"))

    def loss(w, x, policy):
        def layer(x, w):
            return jnp.cos(checkpoint_name(jnp.sin(x @ w), "h"))
        body = jax.checkpoint(layer, policy=policy)
        return jnp.sum(lax.scan(lambda x, w: (body(x, w), None), x, w)[0])

    offload = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[], names_which_can_be_offloaded=["h"], offload_src="device",
        offload_dst="pinned_host")

    def step(w, momentum, x, policy):
        momentum = jax.device_put(momentum, on_device) * 0.9 + jax.grad(loss)(w, x, policy)
        return w - 0.1 * momentum, jax.device_put(momentum, on_host)

    results = []
    for policy in (offload, None):
        w = jnp.asarray(random(3, 8, 8)) / 8
        momentum = jax.device_put(jnp.zeros_like(w), on_host)
        for _ in range(3):
            w, momentum = jax.jit(functools.partial(step, policy=policy), donate_argnums=(0, 1),
                                  out_shardings=(None, on_host))(w, momentum, random(2, 8))
        assert momentum.sharding.memory_kind == "pinned_host", momentum.sharding
        results.append(np.asarray(w))
    np.testing.assert_array_equal(*results)


@case
def factorisations_of_matrices_with_explicit_shardings():
    mesh = jax.make_mesh((2,), ("x",), axis_types=(AxisType.Explicit,), devices=jax.devices()[:2])
    square = random(4, 5, 5) + 4 * np.eye(5, dtype=np.float32)
    programs = {"lu": lax.linalg.lu, "eigvalsh": jnp.linalg.eigvalsh,
                "upper": lambda x: jnp.linalg.eigh(x, UPLO="U")[0],
                "svd": lambda x: jnp.linalg.svd(x[..., :3])[1], "qr": jnp.linalg.qr}
    for name, program in programs.items():
        for part in (1, 1j):
            x = square * part + random(4, 5, 5, seed=1)
            with jax.numpy_rank_promotion("raise"):
                found = jax.jit(program)(jax.device_put(x, NamedSharding(mesh, P("x"))))
            for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(jax.jit(program)(x)),
                                  strict=True):
                np.testing.assert_array_equal(one, other, name)


@case
def factorisations_of_empty_matrices():
    for shape in ((0, 4), (4, 0), (0, 0), (2, 0, 4), (0, 4, 3)):
        for dtype in (np.float32, np.complex64):
            x = np.zeros(shape, dtype)
            for options in ({}, {"full_matrices": False}, {"compute_uv": False}):
                same(functools.partial(jnp.linalg.svd, **options), x)
            same(jnp.linalg.qr, x)
            if shape[-1] == shape[-2]:
                for function in (jnp.linalg.eigh, jnp.linalg.inv, jnp.linalg.slogdet):
                    same(function, x)


if __name__ == "__main__":
    cases.main(CASES)
