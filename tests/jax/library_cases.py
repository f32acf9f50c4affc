"""library_cases.py: what tests of libraries on JAX found, as small programs."""
import jax

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


if __name__ == "__main__":
    cases.main(CASES)
