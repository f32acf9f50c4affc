"""library_cases.py: what tests of libraries on JAX found, as small programs."""
import os
import pathlib
import tempfile

FOLDER = tempfile.TemporaryDirectory()
os.environ["TESSERA_SHOW"] = FOLDER.name

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import cases
from cases import random, same

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


@case
def options_of_the_compiler():
    """Those of XLA are taken, others are an error."""
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
    """Of orthogonal matrices, and of some plus a multiple of the identity."""
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
    """They are scans, whose slices are read and written in place."""
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


if __name__ == "__main__":
    cases.main(CASES)
