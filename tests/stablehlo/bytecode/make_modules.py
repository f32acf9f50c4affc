"""Writes each program of programs.py as bytecode, and the text that jaxlib gives for it.

Usage: make_modules.py FOLDER [--only NAME ...] [--release 1.13.0]
FOLDER/NAME.mlirbc is what the reader reads; FOLDER/NAME.txt is what it must print. With --values
FOLDER/NAME.values replaces the text: the bytes of all arguments, then of all results.
"""

import argparse
import os
import pathlib

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
import jax

# File names in locations, without their folders.
jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")
from jax._src.interpreters import mlir
from jax._src.lib import _jax
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

import numpy as np
import programs


def bytecode(name, release):
    function, arguments = programs.PROGRAMS[name]
    jitted = function if hasattr(function, "lower") else jax.jit(function, keep_unused=True)
    module = jitted.lower(*arguments).compiler_ir("stablehlo")
    return _jax.mlir.serialize_portable_artifact(module, release, True)


def text_of(data):
    context = mlir.make_ir_context()
    with context:
        stablehlo.deserialize_portable_artifact(context, data)  # registers the dialect
        module = ir.Module.parse(data)
        return (
            module.operation.get_asm(
                print_generic_op_form=True, enable_debug_info=True, use_local_scope=True
            )
            + "\n"
        )


def values_of(name):
    function, arguments = programs.PROGRAMS[name]
    results = jax.jit(function)(*arguments)
    arrays = jax.tree.leaves(arguments) + jax.tree.leaves(results)
    return b"".join(np.asarray(array).tobytes() for array in arrays)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--release", default="1.13.0")
    parser.add_argument("--values", action="store_true")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for name in args.only or programs.PROGRAMS:
        data = bytecode(name, args.release)
        (args.folder / f"{name}.mlirbc").write_bytes(data)
        if args.values:
            (args.folder / f"{name}.values").write_bytes(values_of(name))
            continue
        (args.folder / f"{name}.txt").write_text(text_of(data), errors="surrogateescape")


if __name__ == "__main__":
    main()
