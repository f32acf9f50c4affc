#!/usr/bin/env -S python3 -B
"""read_checkpoint.py TESSERA: checks that others read what `tessera train --checkpoint` and
`tessera checkpoint convert` write, with the same bits: the package safetensors, PyTorch's reader of
distributed checkpoints, Orbax, NumPy, torch.load and Flax. A package that is not installed is left
out; without any of them, the exit code is 77."""
import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

SKIPPED = 77
TRAIN = ("train mlp --depth 24 --layers 3 --steps 2 --batch 8 --mesh data=2,model=3 --params fsdp "
         "--dtype f32 --progress off --checkpoint").split()
DTYPES = {"BOOL": ("?", 1), "I32": ("i", 4), "U32": ("I", 4), "F32": ("f", 4), "F64": ("d", 8)}


def shards(folder):
    """(name, offset, shape, dtype, bytes) of each tile, read only by the format's description."""
    for path in sorted(folder.glob("*.safetensors")):
        data = path.read_bytes()
        size, = struct.unpack_from("<Q", data)
        header = json.loads(data[8:8 + size])
        offsets = json.loads(header.pop("__metadata__")["DCP_SHARDING_INFO"])
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            yield (name, offsets[name]["saved_offsets"], entry["shape"], entry["dtype"],
                   data[8 + size + begin:8 + size + end])


def joined(folder, numpy):
    """{name: array}"""
    tiles = {}
    for name, offset, shape, dtype, data in shards(folder):
        code, _ = DTYPES[dtype]
        tile = numpy.frombuffer(data, dtype="<" + code).reshape(shape)
        tiles.setdefault(name, []).append((offset, tile))
    arrays = {}
    for name, parts in tiles.items():
        shape = [max(o[d] + t.shape[d] for o, t in parts) for d in range(parts[0][1].ndim)]
        array = numpy.empty(shape, parts[0][1].dtype)
        for offset, tile in parts:
            array[tuple(slice(o, o + n) for o, n in zip(offset, tile.shape))] = tile
        arrays[name] = array
    return arrays


def compare(reader, found, wanted):
    assert sorted(found) == sorted(wanted), f"{reader}: other names"
    for name, array in wanted.items():
        other = found[name]
        assert other.shape == array.shape and other.dtype == array.dtype, f"{reader}: {name}"
        assert other.tobytes() == array.tobytes(), f"{reader}: {name} has other bits"
    print(f"{reader}: {len(wanted)} arrays, the same bits")


def with_safetensors(checkpoint, exported, wanted):
    from safetensors import safe_open
    from safetensors.numpy import load_file
    index = json.loads((exported / "model.safetensors.index.json").read_text())
    found = {}
    for name, file in index["weight_map"].items():
        found[name] = load_file(exported / file)[name]
    compare("safetensors, whole arrays", found, wanted)
    for path in sorted(checkpoint.glob("*.safetensors")):
        with safe_open(path, "numpy") as file:
            assert file.metadata()["format"] == "pt"
            for name in file.keys():
                file.get_tensor(name)
    print("safetensors: opens the tiles of every device")


def with_torch(checkpoint, wanted):
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    state = {name: torch.zeros(array.shape, dtype=getattr(torch, str(array.dtype)))
             for name, array in wanted.items()}
    dcp.load(state, storage_reader=HuggingFaceStorageReader(str(checkpoint)), no_dist=True)
    compare("torch.distributed.checkpoint", {k: v.numpy() for k, v in state.items()}, wanted)


def leaves(tree, path=""):
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{path}{key}/")
        else:
            yield path + key, value


def with_orbax(exported, wanted):
    import numpy
    import orbax.checkpoint as ocp
    tree = ocp.PyTreeCheckpointer().restore(exported)
    compare("Orbax", {k: numpy.asarray(v) for k, v in leaves(tree)}, wanted)


def with_numpy(exported, wanted):
    import numpy
    compare("np.load", dict(numpy.load(exported / "arrays.npz")), wanted)


def with_torch_file(exported, wanted):
    import torch
    found = torch.load(exported / "weights.pt", weights_only=True)
    dots = {name.replace("/", "."): array for name, array in wanted.items()}
    compare("torch.load", {name: x.numpy() for name, x in found.items()}, dots)


def with_flax(exported, wanted):
    import numpy
    from flax.serialization import msgpack_restore
    tree = msgpack_restore((exported / "arrays.msgpack").read_bytes())
    compare("Flax", {k: numpy.asarray(v) for k, v in leaves(tree)}, wanted)


def has(package):
    import importlib.util
    return importlib.util.find_spec(package) is not None


def main():
    if not has("numpy") or not any(map(has, ("safetensors", "torch", "orbax"))):
        print("skipped: neither safetensors nor torch nor orbax is installed")
        sys.exit(SKIPPED)
    import numpy
    with tempfile.TemporaryDirectory() as folder:
        def tessera(*arguments):
            subprocess.run([sys.argv[1], *arguments], cwd=folder, check=True,
                           stdout=subprocess.DEVNULL)
        tessera(*TRAIN, "run")
        tessera("checkpoint", "convert", "run", "whole")
        tessera("checkpoint", "convert", "run", "orbax", "--to", "orbax")
        checkpoint = Path(folder) / "run" / "step_00000002"
        wanted = joined(checkpoint, numpy)
        if has("safetensors"):
            with_safetensors(checkpoint, Path(folder) / "whole", wanted)
        if has("torch"):
            with_torch(checkpoint, wanted)
        readers = dict(npz=("numpy", with_numpy), torch=("torch", with_torch_file),
                       msgpack=("flax", with_flax))
        for name, (package, read) in readers.items():
            if has(package):
                tessera("checkpoint", "convert", "run", name, "--to", name)
                read(Path(folder) / name, wanted)
        if has("orbax"):
            with_orbax(Path(folder) / "orbax", wanted)


main()
