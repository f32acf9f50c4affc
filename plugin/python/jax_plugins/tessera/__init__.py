"""JAX on Tessera: with this package installed, JAX_PLATFORMS=tessera runs programs on its engine.

JAX finds the package by itself and calls initialize(). Tessera's docs/jax.md says what is
supported.
"""
import os
import pathlib

import jax

# The oldest and the newest version of JAX that were tested.
OLDEST_JAX = (0, 10, 0)
NEWEST_JAX = (0, 12, 0)


def _text(version):
    return ".".join(map(str, version))


def _check_version():
    found = jax.__version_info__[:3]
    if OLDEST_JAX <= found and found[:2] <= NEWEST_JAX[:2]:
        return
    raise RuntimeError(
        "tessera: this version of JAX is not supported\n"
        f"  found:  jax {jax.__version__}\n"
        f"  wanted: jax {_text(OLDEST_JAX)} to {_text(NEWEST_JAX)}\n"
        f"  cure:   pip install 'jax>={_text(OLDEST_JAX)},<={_text(NEWEST_JAX)}'")


def library_path():
    """The path of the plugin: that of this package, unless TESSERA_PJRT_LIBRARY names another."""
    own = pathlib.Path(__file__).parent / "pjrt_tessera.so"
    return os.environ.get("TESSERA_PJRT_LIBRARY", str(own))


def initialize():
    """Registers the platform `tessera`, ahead of JAX's CPU."""
    from jax._src import xla_bridge
    from jax._src.interpreters import mlir

    from jax_plugins.tessera import callbacks, collectives, linalg

    _check_version()
    options = {}
    if jax.config.jax_num_cpu_devices > 0:
        options["num_devices"] = jax.config.jax_num_cpu_devices
    xla_bridge.register_plugin("tessera", priority=500, library_path=library_path(),
                               options=options)
    # Only platforms in this list reuse the memory of donated arguments.
    if "tessera" not in mlir._platforms_with_donation:
        mlir._platforms_with_donation.append("tessera")
    linalg.register()
    collectives.register()
    callbacks.register(library_path())
