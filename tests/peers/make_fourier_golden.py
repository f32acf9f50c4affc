"""Writes golden/fourier.json: Fourier transforms and their gradients, as JAX computes them in f64.
Complex numbers are pairs of arrays.

Run in an environment with jax; the tests only read what it wrote.
"""
import functools
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)
FILE = pathlib.Path(__file__).parent / "golden" / "fourier.json"
rng = np.random.default_rng(5)


def array(*shape):
    """Multiples of 1/64, which JSON holds exactly."""
    return np.round(rng.uniform(-2, 2, shape) * 64) / 64


def packed(x):
    x = np.asarray(x)
    return dict(shape=list(x.shape), values=x.ravel().tolist())


def case(name, function, *inputs, **arguments):
    """The value, and the gradients of sum(value * cos(0, 1, 2, ..))."""

    def parts(*args):
        y = function(jax.lax.complex(*args) if len(args) == 2 else args[0])
        return (y.real, y.imag) if jnp.iscomplexobj(y) else (y,)

    def loss(*args):
        return sum(jnp.sum(x * jnp.cos(jnp.arange(x.size, dtype=x.dtype)).reshape(x.shape))
                   for x in parts(*args))

    gradients = jax.grad(loss, argnums=tuple(range(len(inputs))))(*inputs)
    return dict(name=name, arguments=arguments, inputs=[packed(x) for x in inputs],
                outputs=[packed(x) for x in parts(*inputs)],
                gradients=[packed(g) for g in gradients])


def along_one_axis():
    for name in ("fft", "ifft", "rfft", "irfft"):
        operands = 1 if name == "rfft" else 2
        for shape, options in (((6,), {}), ((2, 7), {}), ((4, 3), dict(axis=0)), ((1, 9), {}),
                               ((2, 5), dict(n=8)), ((2, 5), dict(n=3)), ((2, 2), dict(n=1)),
                               ((2, 4, 3), dict(axis=1, n=5)), ((2, 6), dict(norm="ortho")),
                               ((2, 6), dict(norm="forward")), ((1, 67), {})):
            yield case(name, functools.partial(getattr(jnp.fft, name), **options),
                       *(array(*shape) for _ in range(operands)), **options)


def along_several_axes():
    for name in ("fftn", "ifftn", "rfftn", "irfftn"):
        operands = 1 if name == "rfftn" else 2
        for shape, options in (((3, 4), {}), ((2, 3, 4), dict(axes=[0, 2])),
                               ((2, 3, 4), dict(s=[4, 3], axes=[2, 1])),
                               ((2, 3, 5), dict(s=[4, 6], axes=[-2, -1])),
                               ((4, 3), dict(norm="ortho"))):
            yield case(name, functools.partial(getattr(jnp.fft, name), **options),
                       *(array(*shape) for _ in range(operands)), **options)
    for name in ("fft2", "ifft2"):
        yield case(name, getattr(jnp.fft, name), array(2, 3, 4), array(2, 3, 4))


def frequencies():
    for name in ("fftshift", "ifftshift"):
        for options in ({}, dict(axes=[1])):
            yield case(name, functools.partial(getattr(jnp.fft, name), **options), array(4, 5),
                       **options)
    for name in ("fftfreq", "rfftfreq"):
        for n, d in ((1, 1.0), (8, 0.25), (9, 2.0)):
            yield dict(name=name, arguments=dict(n=n, d=d), inputs=[],
                       outputs=[packed(getattr(np.fft, name)(n, d))])


CASES = [c for make in (along_one_axis, along_several_axes, frequencies) for c in make()]
FILE.write_text(json.dumps(dict(source=f"JAX {jax.__version__}, NumPy {np.__version__}",
                                cases=CASES)) + "\n")
