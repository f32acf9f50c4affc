"""Writes golden/numpy_randint.json and golden/flax_keys.json from NumPy and Flax themselves.

Run in an environment with numpy and flax; the tests only read what it wrote.
"""
import json
import pathlib

import flax
import jax
import numpy as np
from flax.core.scope import LazyRng

FOLDER = pathlib.Path(__file__).parent / "golden"
SEEDS = (0, 1, 42, 1234, 2**31, 2**32 - 1)
RANGES = ((0, 1), (-7, -6), (0, 2), (0, 3), (0, 10), (0, 100), (0, 255), (0, 256), (0, 257),
          (0, 512), (-5, 5), (-100000, 1), (0, 2**31 - 1), (0, 2**31), (-2**31, 0), (-2**31, 1),
          (-2**31, 2**31 - 1), (-2**31, 2**31))
COUNT = 1500
PATHS = ((), ("blocks_0", "Dense_0"), ("pos_emb",), ("Embed_0",), ("ScanDotReluDot_0",),
         ("a" * 51,), ("a" * 52,), ("a" * 60, "b" * 60), ("schl\u00fcssel",))
COUNTERS = (0, 1, 2, 3, 255, 256, 65535, 65536, 16777216, 2**32 - 1)


def randint_case(seed, low, high):
    state = np.random.RandomState(seed)
    values = state.randint(low, high, size=COUNT, dtype=np.int32).astype(np.int64)
    weights = np.arange(1, COUNT + 1)
    return dict(seed=seed, low=low, high=high, first=values[:8].tolist(), last=int(values[-1]),
                weighted_sum=int((values * weights).sum()),
                next_u32=int(state.randint(0, 2**32, dtype=np.uint32)))


def key_case(seed, path, counter):
    rng = LazyRng.create(jax.random.PRNGKey(seed), *path, counter)
    return dict(seed=seed, path=path, counter=counter, key=np.asarray(rng.as_jax_rng()).tolist())


def write(name, **content):
    (FOLDER / name).write_text(json.dumps(content) + "\n")


write("numpy_randint.json", source=f"NumPy {np.__version__}", count=COUNT,
      cases=[randint_case(seed, *r) for seed in SEEDS for r in RANGES])
write("flax_keys.json", source=f"Flax {flax.__version__}, JAX {jax.__version__}",
      cases=[key_case(seed, p, c) for seed in (0, 42) for p in PATHS for c in COUNTERS])
