"""library_cases.py: what tests of libraries on JAX found, as small programs."""
import jax
import jax.numpy as jnp
import numpy as np

import cases

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


if __name__ == "__main__":
    cases.main(CASES)
