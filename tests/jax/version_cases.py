"""version_cases.py: which versions of JAX are supported, and what only some of these have."""
import functools
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import cases
import jax_plugins.tessera
from cases import DEVICES, random, same, terms_of

CASES = {}
IS_NEW = jax.__version_info__ >= (0, 11)  # solves triangular systems of 16 bits, ranks booleans
HAS_EXTREMA = jax.__version_info__ >= (0, 11, 1)  # max and min of terms on devices


def case(function):
    CASES[function.__name__] = function
    return function


@case
def versions():
    for version in ((0, 10, 0), (0, 10, 2), (0, 11, 0), (0, 11, 2), (0, 12, 0)):
        with mock.patch.object(jax, "__version_info__", version):
            jax_plugins.tessera._check_version()
    for version in ((0, 9, 2), (0, 13, 0), (1, 0, 0)):
        text = ".".join(map(str, version))
        with mock.patch.multiple(jax, __version_info__=version, __version__=text):
            try:
                jax_plugins.tessera._check_version()
            except RuntimeError as error:
                assert str(error) == (
                    "tessera: this version of JAX is not supported\n"
                    f"  found:  jax {text}\n"
                    "  wanted: jax 0.10.0 to 0.12.0\n"
                    "  cure:   pip install 'jax>=0.10.0,<=0.12.0'"), error
                continue
        raise AssertionError(f"{text} is taken")


@case
def two_meshes():
    """Functions of the tiles of two meshes whose axes differ in names and sizes."""
    rows = jax.make_mesh((4, 2), ("x", "y"), (AxisType.Auto,) * 2, devices=DEVICES)
    columns = jax.make_mesh((2, 4), ("a", "b"), (AxisType.Auto,) * 2, devices=DEVICES)
    for order in (None, [3, 1, 0, 2, 7, 5, 4, 6]):
        if order is not None:
            shuffled = DEVICES[order]
            rows = jax.sharding.Mesh(shuffled.reshape(4, 2), ("x", "y"))
            columns = jax.sharding.Mesh(shuffled.reshape(2, 4), ("a", "b"))

        def f(x, rows=rows, columns=columns):
            y = jax.shard_map(
                lambda t: lax.psum(t, "y") + lax.axis_index("x"), mesh=rows,
                in_specs=P("x", "y"), out_specs=P("x"))(x)
            return jax.shard_map(
                lambda t: lax.psum(t * (1 + lax.axis_index("b")), "b") + lax.axis_index("a"),
                mesh=columns, in_specs=P("b", "a"), out_specs=P(None, "a"))(y)

        x = random(8, 8, dtype=np.int32)
        y = x.reshape(8, 2, 4).sum(1) + np.arange(4).repeat(2)[:, None]
        wanted = (y.reshape(4, 2, 4) * np.arange(1, 5)[:, None, None]).sum(0)
        np.testing.assert_array_equal(jax.jit(f)(x), wanted + np.arange(2).repeat(2))


@case
def settings_of_the_caller():
    """A Python function that a program calls computes neither in the mesh of the thread that calls
    the program, nor with other settings of that thread."""
    mesh = jax.make_mesh((8,), ("x",), (AxisType.Explicit,), devices=DEVICES)
    x, square = random(16, 2), random(4, 4)

    def function(a):
        return a + 1, jnp.nan_to_num(jnp.log(a - 100), nan=7)

    with jax.set_mesh(mesh), jax.debug_nans(True):
        @jax.shard_map(in_specs=P("x"), out_specs=(P("x"), P("x")))
        def f(tile):
            like = jax.ShapeDtypeStruct.like(tile)
            return jax.pure_callback(function, (like, like), tile)

        one, seven = jax.jit(f)(jax.device_put(x, P("x")))
        np.testing.assert_allclose(one, x + 1, rtol=1e-6)
        np.testing.assert_array_equal(seven, np.full((16, 2), 7))
        assert jax.sharding.get_mesh() == mesh
        try:
            jnp.log(jnp.float32(-1)).block_until_ready()
        except FloatingPointError:
            pass
        else:
            raise AssertionError("jax.debug_nans ends with the call")
    with jax.set_mesh(mesh):
        found = np.asarray(jnp.linalg.eigvals(square))
    wanted = np.linalg.eigvals(square)
    np.testing.assert_allclose(np.sort_complex(found), np.sort_complex(wanted), rtol=1e-5)


def unreduced_extremum(name):
    kind = getattr(jax.sharding.UnreducedKind, name)
    reduce, join = getattr(jnp, name), getattr(lax, f"p{name}")
    mesh = jax.make_mesh((2, 2), ("x", "y"), (AxisType.Explicit,) * 2, devices=DEVICES[:4])
    apart = P(None, unreduced={"x"}, unreduced_kind=kind)
    x = random(4, 6)
    with jax.set_mesh(mesh):
        given = jax.device_put(x, P("x", "y"))
        lax_reduce = getattr(lax, f"reduce_{name}")
        y = jax.jit(lambda x: lax_reduce(x, axes=(0,), out_sharding=P(
            "y", unreduced={"x"}, unreduced_kind=kind)))(given)
        assert y.sharding.spec.unreduced_kind is kind
        terms = terms_of(y)
        for column in range(2):
            joined = reduce(np.stack([terms[column], terms[2 + column]]), axis=0)
            np.testing.assert_array_equal(joined, reduce(x, axis=0)[3 * column:3 * column + 3])
        total = jax.jit(lambda y: jax.sharding.reshard(y, P("y")))(y)
        np.testing.assert_array_equal(total, reduce(x, axis=0))
        joined = jax.jit(jax.shard_map(lambda y: join(y, "x"), out_specs=P("y")))(y)
        np.testing.assert_array_equal(joined, reduce(x, axis=0))


if HAS_EXTREMA:
    for name in ("max", "min"):
        CASES[f"unreduced_{name}"] = functools.partial(unreduced_extremum, name)
if IS_NEW:
    matrix = np.tril(random(3, 5, 5)) + 6 * np.eye(5, dtype=np.float32)
    for dtype in (jnp.float16, jnp.bfloat16):
        for is_left, is_transposed in ((True, False), (False, True)):
            b = random(3, 5, 5, seed=1)
            CASES[f"triangular_solve_{np.dtype(dtype)}_{is_left}"] = functools.partial(
                same, functools.partial(lax.linalg.triangular_solve, left_side=is_left,
                                        lower=True, transpose_a=is_transposed),
                matrix.astype(dtype), b.astype(dtype))
    bits = random(4, 9) > 0
    CASES["top_k_bool"] = functools.partial(same, lambda x: lax.top_k(x, 4), bits)

cases.main(CASES)
