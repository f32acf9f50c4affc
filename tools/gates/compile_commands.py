"""The compiler flags that CMake wrote for a build folder."""
import json
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed

from gates import ROOT

WITH_ARGUMENT = ("-o", "-MF", "-MT", "-MQ")
WITHOUT = ("-Winvalid-pch", "-fpch-preprocess")


def without_launcher(words):
    """The compiler command after `env NAME=VALUE... ccache`."""
    while os.path.basename(words[0]) in ("ccache", "env") or "=" in words[0]:
        words = words[1:]
    return words


def without_precompiled(words):
    """The compiler command without its options for precompiled headers. With clang these options
    follow -Xclang; no other option that matters to the gates does."""
    kept, skip = [], False
    for word in without_launcher(words):
        if not skip and word not in ("-include", "-Xclang", *WITHOUT):
            kept.append(word)
        skip = not skip and word in ("-include", "-Xclang")
    return kept


def flags_by_folder(build):
    """{folder of the tree: compiler and flags of one source in or below it}. Sources of the library
    come before its tests; in tests/ and tools/ the one with the most flags is chosen."""
    commands = ROOT / build / "compile_commands.json"
    if not commands.is_file():
        sys.exit(f"{commands} is missing: configure first (cmake --preset dev)")
    flags = {}
    for entry in json.loads(commands.read_text()):
        path = os.path.relpath(entry["file"], ROOT)
        words = shlex.split(entry["command"])
        kept, skip = [], False
        for word in without_precompiled(words):
            if not skip and word not in ("-c", "-MD", entry["file"], *WITH_ARGUMENT):
                kept.append(word)
            skip = not skip and word in WITH_ARGUMENT
        is_test = path.endswith("_test.cc") and not path.startswith("tests/")
        folder = os.path.dirname(path)
        while folder:
            rank = (not is_test, len(kept) if path.startswith(("tests/", "tools/")) else 0)
            if folder not in flags or rank > flags[folder][0]:
                flags[folder] = (rank, kept)
            folder = os.path.dirname(folder)
    return {folder: kept for folder, (_, kept) in flags.items()}


def flags_of(path, flags):
    """The flags of the innermost folder of a file that has some; else those of src."""
    folder = os.path.dirname(path)
    while folder and folder not in flags:
        folder = os.path.dirname(folder)
    return flags.get(folder, flags["src"])


def run_all(jobs):
    """Runs the commands {name: words} on all cores; returns {name: output} of those that failed."""
    def run(item):
        result = subprocess.run(item[1], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True, check=False, cwd=ROOT)
        return item[0], result
    results = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for future in as_completed([pool.submit(run, item) for item in jobs.items()]):
            results.append(future.result())
            print(f"[{len(results)}/{len(jobs)}] {results[-1][0]}", flush=True)
    return {name: result.stdout for name, result in results if result.returncode != 0}
