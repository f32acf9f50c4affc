"""Writes golden/foreign/orbax: the same tree in checkpoints of Orbax with different settings.

    pip install jax orbax-checkpoint
    python3 tests/peers/make_orbax_golden.py

`ocdbt` has Zarr 2 in a database, `zarr` Zarr 2 in files, `zarr3` Zarr 3 in a database. `deep` is a
database whose tree has several levels, and in which some elements are not stored.
"""
import json
import os
import shutil

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import tensorstore

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "golden", "foreign", "orbax")
UNUSED = ("_sharding", "_CHECKPOINT_METADATA", "commit_success.txt", "array_metadatas")


def tree():
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
    halves = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(None, "x"))
    kernel = jnp.arange(12, dtype=jnp.float32).reshape(3, 4) / 8
    return {"dense": {"kernel": jax.device_put(kernel, halves),
                      "bias": jnp.array([1.5, -2, 65504], jnp.float16)},
            "mask": np.array([True, False]), "ids": np.array([[1, -2], [3, 4]], np.int32),
            "bf16": jnp.array([1, -3], jnp.bfloat16), "count": np.int64(7), "nothing": {},
            "float8": jnp.ones(2, jnp.float8_e4m3fn), "name": "run"}


def write_checkpoint(name, **settings):
    folder = os.path.join(OUT, name)
    ocp.Checkpointer(ocp.PyTreeCheckpointHandler(**settings)).save(folder, tree())
    for unused in UNUSED:
        path = os.path.join(folder, unused)
        if os.path.isdir(path):
            shutil.rmtree(path)
        elif os.path.exists(path):
            os.remove(path)


def write_deep():
    folder = os.path.join(OUT, "deep")
    store = {"driver": "ocdbt", "base": f"file://{folder}/",
             "config": {"max_decoded_node_bytes": 250, "max_inline_value_bytes": 20}}
    array = tensorstore.open(
        {"driver": "zarr", "kvstore": {**store, "path": "some.values/"},
         "metadata": {"compressor": {"id": "zstd", "level": 1}}},
        dtype=tensorstore.float32, shape=[9, 5], create=True, fill_value=0.5,
        chunk_layout=tensorstore.ChunkLayout(chunk_shape=[2, 1])).result()
    array[:, 1:].write(np.arange(36, dtype=np.float32).reshape(9, 4)).result()
    keys = [{"key": key, "key_type": 2} for key in ("some", "values")]
    leaf = {"key_metadata": keys, "value_metadata": {"value_type": "jax.Array"}}
    with open(os.path.join(folder, "_METADATA"), "w") as file:
        json.dump({"tree_metadata": {"('some', 'values')": leaf}}, file)


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    write_checkpoint("ocdbt")
    write_checkpoint("zarr", use_ocdbt=False)
    write_checkpoint("zarr3", use_zarr3=True)
    write_deep()


main()
