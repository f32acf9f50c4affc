"""Shows the arrays and types of Tessera in gdb:

    gdb -ex "source tools/gdb/tessera.py" ./program
    (gdb) print x
    $1 = f32[2,2] [1, 2, 3, 4]

Arrays are asked for their text, so the program must be running; in a core file only their addresses
are shown. The library needs no debugging symbols, the program does (-g).
"""
import gdb
import gdb.printing


def text_of_array(value):
    """What the library says of an Array; None if it cannot be asked."""
    try:
        address = int(value.address)
        call = f"((const char* (*)(const void*))tessera_debug_text)((const void*){address})"
        return gdb.parse_and_eval(call).string()
    except (gdb.error, TypeError):
        return None


class ArrayPrinter:
    """tessera::Array and what derives from it."""

    def __init__(self, value):
        self.value = value

    def to_string(self):
        return text_of_array(self.value) or f"an array at {self.value.address}"


class KeyPrinter:
    """tessera::random::Key."""

    def __init__(self, value):
        self.value = value

    def to_string(self):
        return f"key {ArrayPrinter(self.value['data_']).to_string()}"


class OperandPrinter:
    """tessera::Operand: an array or a number."""

    def __init__(self, value):
        self.value = value

    def to_string(self):
        kind = str(self.value["kind"]).rsplit("::", 1)[-1]
        if kind == "array":
            return ArrayPrinter(self.value["array"]).to_string()
        return str(self.value["real" if kind == "real" else "integer"])


class TypePrinter:
    """tessera::Type, as f32[2,3]."""

    def __init__(self, value):
        self.value = value

    def to_string(self):
        dtype = str(self.value["dtype"]).rsplit("::", 1)[-1]
        sizes = self.value["shape"]["_M_impl"]
        count = int(sizes["_M_finish"] - sizes["_M_start"])
        shape = ",".join(str(int(sizes["_M_start"][i])) for i in range(count))
        return f"{'bool' if dtype == 'boolean' else dtype}[{shape}]"


def printers():
    collection = gdb.printing.RegexpCollectionPrettyPrinter("tessera")
    collection.add_printer("Array", "^tessera::(Array|Param|nn::Buffer)$", ArrayPrinter)
    collection.add_printer("Key", "^tessera::random::Key$", KeyPrinter)
    collection.add_printer("Operand", "^tessera::Operand$", OperandPrinter)
    collection.add_printer("Type", "^tessera::Type$", TypePrinter)
    return collection


gdb.printing.register_pretty_printer(gdb.current_objfile(), printers(), replace=True)
