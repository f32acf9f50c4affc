"""Writes the table of src/stablehlo/bytecode/properties.cc: which properties each operation stores.

Asks the verifier of an installed jaxlib, operation by operation: it names one missing attribute or
operand at a time. For sdy, whose verifier wants attributes that fit, jaxlib's classes tell.
Usage: derive_properties.py > table
"""

import importlib.util
import inspect
import os
import pathlib
import re

os.environ["JAX_PLATFORMS"] = "cpu"
import jax
import jax.numpy as jnp
from jax._src.interpreters import mlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import _sdy_ops_gen, stablehlo

SCALAR = "!vhlo.tensor_v1<!vhlo.f32_v1>"
CONSTANT = (
    '%x = "vhlo.constant_v1"() <{value = #vhlo.tensor_v1<dense<0.0> : tensor<f32>>}> : '
    f"() -> {SCALAR}\n"
)
COUNTS = [
    ("results", r"requires one result", 1),
    ("results", r"(?:requires|expected) (\d+)(?: or more)? results", None),
    ("operands", r"requires a single operand", 1),
    ("operands", r"expected (\d+)(?: or more)? operands", None),
    ("regions", r"requires one region", 1),
    ("regions", r"(?:requires|expected) (\d+)(?: or more)? regions", None),
]


def names():
    """Names in jaxlib's library that look like operations; attributes and types are among them."""
    folder = pathlib.Path(importlib.util.find_spec("jaxlib").origin).parent
    data = (folder / "libjax_common.so").read_bytes()
    return sorted(
        {name.decode() for name in re.findall(rb"\0(vhlo\.[a-z0-9_]+_v[0-9]+)(?=\0)", data)}
    )


def program(name, attributes, counts, value="unit", result="%r"):
    operands = ", ".join(["%x"] * counts["operands"])
    types = ", ".join([SCALAR] * counts["operands"])
    results = ", ".join([SCALAR] * counts["results"])
    regions = ", ".join(['{^bb0: "vhlo.return_v1"() : () -> ()}'] * counts["regions"])
    properties = f"<{{{', '.join(f'{a} = {value}' for a in attributes)}}}>" if attributes else ""
    return (
        CONSTANT
        + (f"{result}:{counts['results']} = " if counts["results"] else "")
        + f'"{name}"({operands}) {properties} {f"({regions})" if regions else ""} : '
        + f"({types}) -> ({results})"
    )


def shape_of(name):
    """The names of the properties, and how many results, operands and regions there must be; None
    if there is no such operation."""
    attributes, counts = [], {"results": 0, "operands": 0, "regions": 0}
    for _ in range(100):
        try:
            ir.Module.parse(program(name, attributes, counts))
            return attributes, counts
        except ir.MLIRError as error:
            text = str(error)
        if "unregistered operation" in text:
            return None
        if found := re.search(r"requires attribute '(\w+)'", text):
            attributes.append(found[1])
            continue
        for what, pattern, count in COUNTS:
            if found := re.search(pattern, text):
                counts[what] = count or int(found[1])
                break
        else:
            raise SystemExit(f"{name}: {text}")
    raise SystemExit(f"{name}: no end")


def sharding_operations():
    """Names and properties of the operations of sdy; '?' before those that may be missing."""
    for _, kind in inspect.getmembers(_sdy_ops_gen, inspect.isclass):
        if not hasattr(kind, "OPERATION_NAME") or not issubclass(kind, ir.OpView):
            continue
        found = re.findall(
            r'(if \w+ is not None: )?attributes\["(\w+)"\] = ', inspect.getsource(kind.__init__)
        )
        yield kind.OPERATION_NAME, sorted(
            ("?" if optional else "") + name for optional, name in found
        )


def context_with_vhlo():
    context = mlir.make_ir_context()
    module = jax.jit(lambda x: x + x).lower(jnp.ones(2)).compiler_ir("stablehlo")
    with context:
        # Registers the dialect.
        stablehlo.deserialize_portable_artifact(
            context, stablehlo.serialize_portable_artifact(module, "1.13.0")
        )
    return context


def main():
    with context_with_vhlo():
        shapes = {name: shape_of(name) for name in names()}
    table = {name: shape[0] for name, shape in shapes.items() if shape}
    table.update(sharding_operations())
    table["builtin.module"] = ["?sym_name", "?sym_visibility"]
    table["builtin.unrealized_conversion_cast"] = []
    for name, attributes in sorted(table.items()):
        attributes.sort(key=lambda a: a.lstrip("?"))
        print(f'    {{"{name}", "{" ".join(attributes)}"}},')


if __name__ == "__main__":
    main()
