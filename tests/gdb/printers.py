#!/usr/bin/env -S python3 -B
"""printers.py PRINTERS PROGRAM: what gdb shows of arrays and types. Exit code 77 without gdb, or
where it may not run programs."""
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
WANTED = ["f32[2,2] [1, 2, 3, 4]", "f32[1,2] (parameter up/kernel) [1, 1]", "bool[4,5]", "2.5",
          "f32[2,2] [2, 4, 6, 8]", "key u32[2] [0, 7]",
          "f32[2,2] (traced)", "an empty Array", "f32[]", "3", "an empty Array",
          "key an empty Array",
          "f32[2,2] (traced) [2, 4, 6, 8]", "an empty Array", "f32[]", "3", "an empty Array",
          "key an empty Array"]
NAMES = ("x", "param", "type", "number", "operand", "key")


def main():
    if shutil.which("gdb") is None:
        print("skipped: gdb is not installed")
        sys.exit(SKIPPED)
    printers, program = sys.argv[1:]
    commands = ["set confirm off", "set debuginfod enabled off", f"source {printers}",
                "break stop_here", "run"]
    for _ in range(3):
        commands += [f"print {name}" for name in NAMES] + ["continue"]
    with tempfile.NamedTemporaryFile("w", suffix=".gdb") as script:
        script.write("\n".join(commands) + "\n")
        script.flush()
        result = subprocess.run(["gdb", "-nx", "-batch", "-x", script.name, program],
                                capture_output=True, text=True, timeout=120)
    if "ptrace: Operation not permitted" in result.stderr or "Could not trace" in result.stderr:
        print("skipped: gdb may not run programs here")
        sys.exit(SKIPPED)
    found = [line.split(" = ", 1)[1] for line in result.stdout.splitlines()
             if line.startswith("$") and " = " in line]
    assert found == WANTED, f"found {found}\nwanted {WANTED}\n{result.stdout}{result.stderr}"
    print(f"{len(found)} values as wanted")


main()
