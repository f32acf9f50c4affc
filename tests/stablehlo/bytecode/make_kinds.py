"""Writes two modules that have every operation of vhlo, and every kind of type and attribute
(attributes.txt), and one with a comparison that JAX does not write.

Usage: make_kinds.py FOLDER
"""

import io
import pathlib
import sys

from derive_properties import CONSTANT, context_with_vhlo, names, program, shape_of
from jaxlib.mlir import ir

TYPES = """
bool_v1 bf16_v1 f16_v1 f32_v1 f64_v1 f8E4M3FN_v1 f8E5M2_v1 index_v1 i2_v1 i4_v1 i8_v1 i16_v1
i32_v1 i64_v1 ui2_v1 ui4_v1 ui8_v1 ui16_v1 ui32_v1 ui64_v1 token_v1 none_v1 witness_v1
f8E4M3FNUZ_v1 f8E5M2FNUZ_v1 f8E4M3B11FNUZ_v1 f8E4M3_v1 f8E3M4_v1 f4E2M1FN_v1 f6E2M3FN_v1
f6E3M2FN_v1 f8E8M0FNU_v1 tf31_v1 tuple_v1<!vhlo.f32_v1,!vhlo.token_v1> complex_v1<!vhlo.f32_v1>
unranked_tensor_v1<!vhlo.f32_v1> future_v1<!vhlo.f32_v1> buffer_v1<3x!vhlo.f32_v1>
func_v1<(!vhlo.f32_v1)->!vhlo.f32_v1>
tensor_v1<?x3x!vhlo.f32_v1,#vhlo.type_extensions_v1<bounds=[4,3]>>
""".split()

NUMBERS = "!vhlo.tensor_v1<3x!vhlo.f32_v1>"
BOOLEANS = "!vhlo.tensor_v1<3x!vhlo.bool_v1>"
WEAK_ORDER = f"""
"vhlo.func_v1"() <{{arg_attrs = #vhlo.array_v1<[]>,
    function_type = #vhlo.type_v1<!vhlo.func_v1<({NUMBERS}) -> {BOOLEANS}>>,
    res_attrs = #vhlo.array_v1<[]>, sym_name = #vhlo.string_v1<"main">,
    sym_visibility = #vhlo.string_v1<"public">}}> ({{
^bb0(%a: {NUMBERS}):
  %0 = "vhlo.compare_v1"(%a, %a) <{{compare_type = #vhlo<comparison_type_v1 WEAKORDER>,
      comparison_direction = #vhlo<comparison_direction_v1 LT>}}>
      : ({NUMBERS}, {NUMBERS}) -> {BOOLEANS}
  "vhlo.return_v1"(%0) : ({BOOLEANS}) -> ()
}}) : () -> ()
"""


def operations():
    text = CONSTANT
    for number, name in enumerate(names()):
        shape = shape_of(name)
        if shape and name != "vhlo.return_v1":
            text += (
                program(name, *shape, value=f'"{number}"', result=f"%r{number}").split("\n", 1)[1]
                + "\n"
            )
    return text


def attributes():
    text = (pathlib.Path(__file__).parent / "attributes.txt").read_text()
    listed = text.splitlines() + ["!vhlo." + name for name in TYPES]
    return "".join(
        f'"vhlo.optimization_barrier_v1"() {{x = {each}}} : () -> ()\n' for each in listed
    )


def main():
    folder = pathlib.Path(sys.argv[1])
    with context_with_vhlo():
        for name, text in (
            ("all_operations", operations()),
            ("all_attributes", attributes()),
            ("weak_order", WEAK_ORDER),
        ):
            module = ir.Module.parse(text).operation
            data = io.BytesIO()
            module.write_bytecode(data, desired_version=6)
            (folder / f"{name}.mlirbc").write_bytes(data.getvalue())
            (folder / f"{name}.txt").write_text(
                module.get_asm(
                    print_generic_op_form=True, enable_debug_info=True, use_local_scope=True
                )
                + "\n"
            )


main()
