#!/usr/bin/env -S python3 -B
"""printers.py gdb|lldb PRINTERS PROGRAM: what a debugger shows of arrays and types. Exit code 77
where it is not installed or may not run programs."""
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
STOPS = 3
GDB = ("gdb", "-nx", "-batch", "-x")
LLDB = ("lldb", "lldb-19")
# gdb 13 has no room for the registers of AMX, and so cannot call functions where they exist.
NO_CALLS = "Couldn't write extended state status"
UNUSABLE = ("ptrace: Operation not permitted", "Could not trace", "Operation not permitted",
            "no script interpreter", "No module named 'lldb'", NO_CALLS)


def values_in_gdb(printers, program):
    commands = ["set confirm off", "set debuginfod enabled off", f"source {printers}",
                "break stop_here", "run"]
    call = run(GDB, [*commands, "print (int) getpid()"], program)
    if NO_CALLS in call.stderr:
        return call, []
    for _ in range(STOPS):
        commands += [f"print {name}" for name in NAMES] + ["continue"]
    result = run(GDB, commands, program)
    return result, [line.split(" = ", 1)[1] for line in result.stdout.splitlines()
                    if line.startswith("$") and " = " in line]


def values_in_lldb(printers, program):
    commands = [f"command script import {printers}", "breakpoint set --name stop_here", "run"]
    for _ in range(STOPS):
        commands += [f"frame variable {name}" for name in NAMES] + ["continue"]
    result = run([which(LLDB), "--no-lldbinit", "--batch", "--source"], commands, program)
    return result, [line.split(" = ", 1)[1] for line in result.stdout.splitlines()
                    if line.startswith("(const tessera::")]


def run(debugger, commands, program):
    with tempfile.NamedTemporaryFile("w") as script:
        script.write("\n".join(commands) + "\n")
        script.flush()
        return subprocess.run([*debugger, script.name, program], capture_output=True, text=True,
                              timeout=120)


def which(names):
    """The first of the programs that is installed."""
    return next((name for name in names if shutil.which(name)), None)


def main():
    debugger, printers, program = sys.argv[1:]
    if which({"gdb": ("gdb",), "lldb": LLDB}[debugger]) is None:
        print(f"skipped: {debugger} is not installed")
        sys.exit(SKIPPED)
    values_in = {"gdb": values_in_gdb, "lldb": values_in_lldb}[debugger]
    result, found = values_in(printers, program)
    if any(reason in result.stderr for reason in UNUSABLE):
        print(f"skipped: {debugger} may not run programs or call functions here, or has no Python")
        sys.exit(SKIPPED)
    assert found == WANTED, f"found {found}\nwanted {WANTED}\n{result.stdout}{result.stderr}"
    print(f"{len(found)} values as wanted")


main()
