"""Writes a module with sdy.all_reduce, of which versions of sdy store other properties.

Usage: make_all_reduce.py FOLDER/NAME
"""

import pathlib
import sys

from jaxlib.mlir import ir
from make_modules import mlir, _jax, text_of

SHARDING = '<@mesh, [{"x"}, {}]>'
MODULE = f"""
sdy.mesh @mesh = <["x"=2, "y"=2]>
func.func public @main(%a: tensor<4x4xf32>) -> tensor<4x4xf32> {{
  %b = sdy.sharding_constraint %a {SHARDING} : tensor<4x4xf32>
  %c = sdy.all_reduce {{"y"}} %b out_sharding={SHARDING} : tensor<4x4xf32>
  return %c : tensor<4x4xf32>
}}
"""


def main():
    path = pathlib.Path(sys.argv[1])
    with mlir.make_ir_context():
        data = _jax.mlir.serialize_portable_artifact(ir.Module.parse(MODULE), "1.13.0", True)
    path.with_suffix(".mlirbc").write_bytes(data)
    path.with_suffix(".txt").write_text(text_of(data))


main()
