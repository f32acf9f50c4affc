"""Shows the arrays and types of Tessera in lldb:

    lldb -o "command script import tools/lldb/tessera.py" ./program
    (lldb) frame variable x
    (const tessera::Array &) x = f32[2,2] [1, 2, 3, 4]

Arrays are asked for their text, so the program must be running; in a core file only their addresses
are shown. The library needs no debugging symbols, the program does (-g).
"""
import lldb

LONGEST_TEXT = 1 << 16


def referred(value):
    """What a reference refers to."""
    value = value.GetNonSyntheticValue()
    return value.Dereference() if value.GetType().IsReferenceType() else value


def text_of_array(value, _=None):
    """tessera::Array and what derives from it, as the library shows it."""
    address = referred(value).GetLoadAddress()
    options = lldb.SBExpressionOptions()
    options.SetIgnoreBreakpoints(True)
    call = f"((const char* (*)(const void*))tessera_debug_text)((const void*){address})"
    text = value.GetFrame().EvaluateExpression(call, options)
    error = lldb.SBError()
    found = value.GetProcess().ReadCStringFromMemory(text.GetValueAsUnsigned(), LONGEST_TEXT, error)
    return found if error.Success() and found else f"an array at {address:#x}"


def text_of_key(value, _=None):
    """tessera::random::Key."""
    return f"key {text_of_array(referred(value).GetChildMemberWithName('data_'))}"


def text_of_operand(value, _=None):
    """tessera::Operand: an array or a number."""
    value = referred(value)
    kind = value.GetChildMemberWithName("kind").GetValue()
    if kind == "array":
        return text_of_array(value.GetChildMemberWithName("array"))
    return value.GetChildMemberWithName("real" if kind == "real" else "integer").GetValue()


def text_of_type(value, _=None):
    """tessera::Type, as f32[2,3]."""
    value = referred(value)
    dtype = value.GetChildMemberWithName("dtype").GetValue()
    shape = value.GetChildMemberWithName("shape")  # lldb shows a vector by its elements
    sizes = [shape.GetChildAtIndex(i).GetValue() for i in range(shape.GetNumChildren())]
    return f"{'bool' if dtype == 'boolean' else dtype}[{','.join(sizes)}]"


def __lldb_init_module(debugger, _):
    for function, types in ((text_of_array, "(Array|Param|nn::Buffer)"),
                            (text_of_key, "random::Key"), (text_of_operand, "Operand"),
                            (text_of_type, "Type")):
        debugger.HandleCommand("type summary add --no-value --python-function "
                               f"{__name__}.{function.__name__} --regex '^tessera::{types}$'")
