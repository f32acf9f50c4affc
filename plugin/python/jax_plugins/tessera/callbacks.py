"""Functions in Python that programs call while they run: jax.debug.print, jax.debug.callback,
jax.pure_callback, jax.experimental.io_callback.

Functions have numbers, and a program has a custom call with the number of its function. The library
calls back with that number and with the addresses of the elements of arguments and results.
"""
import atexit
import ctypes
import functools
import itertools
import logging
import threading
import traceback
import weakref

import jax
import numpy as np
from jax._src import callback as jax_callback
from jax._src import checkify
from jax._src import config
from jax._src import core
from jax._src import debugging
from jax._src import dispatch
from jax._src import dtypes
from jax._src import effects
from jax._src import mesh as mesh_lib
from jax._src import sharding_impls
from jax._src import xla_bridge
from jax._src.interpreters import mlir
from jax._src.lib import xla_client
from jax._src.lib.mlir import ir
from jax._src.lib.mlir.dialects import hlo

_CALL = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.POINTER(ctypes.c_void_p),
                         ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)
_HOLD = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_int64)
_RELEASE = ctypes.CFUNCTYPE(None, ctypes.c_int64)


class _Calls(ctypes.Structure):
    """The struct PythonCalls of plugin/python_calls.h."""
    _fields_ = [("call", _CALL), ("hold", _HOLD), ("release", _RELEASE),
                ("holds_lock", ctypes.c_void_p), ("give_lock", ctypes.c_void_p),
                ("take_lock", ctypes.c_void_p)]


_numbers = itertools.count(1)
# Functions by number: _known has all functions that programs were made with; _held has those of
# compiled programs, with the number of programs that hold each. The lock is reentrant, because a
# garbage collection may release programs while the lock is held.
_known = weakref.WeakValueDictionary()
_held = {}
_lock = threading.RLock()
_library = None
_calls = None
# JAX's per-thread settings: the ones that users change, the mesh and the trace.
_settings = [value for module in (config, core) for value in vars(module).values()
             if isinstance(value, config.config_ext.Config)]


def cpu_device():
    """The device on which functions get their arguments; None without JAX's CPU backend."""
    try:
        return xla_bridge.local_devices(backend="cpu")[0]
    except RuntimeError:
        return None


def _array(address, aval):
    """A copy of the elements at this address."""
    dtype = np.dtype(aval.dtype)
    size = dtype.itemsize * int(np.prod(aval.shape, dtype=np.int64))
    if size == 0:
        return np.empty(aval.shape, dtype)
    return np.frombuffer(ctypes.string_at(address, size), dtype).reshape(aval.shape)


def _check(values, avals):
    """Raises errors with the same texts as JAX."""
    if len(values) != len(avals):
        raise RuntimeError("Mismatched number of outputs from callback. "
                           f"Expected: {len(avals)}, Actual: {len(values)}")
    for i, (value, aval) in enumerate(zip(values, avals)):
        if value.shape != aval.shape:
            raise RuntimeError(f"Incorrect output shape for return value #{i}: "
                               f"Expected: {aval.shape}, Actual: {value.shape}")
        if value.dtype != aval.dtype:
            raise RuntimeError(f"Incorrect output dtype for return value #{i}: "
                               f"Expected: {aval.dtype}, Actual: {value.dtype}")


class _SettingsOfNewThread:
    """Gives JAX the settings of a new thread. This matters when a program calls functions in the
    thread that runs it: the mesh of that thread has no devices of JAX's CPU backend."""

    def __enter__(self):
        unset = config.config_ext.unset
        self.before = [(setting, setting.get_local()) for setting in _settings
                       if setting.get_local() is not unset]
        for setting, _ in self.before:
            self.set(setting, unset)

    def __exit__(self, *_):
        for setting, value in self.before:
            self.set(setting, value)

    def set(self, setting, value):
        setting.set_local(value)
        tell = getattr(setting, "_update_thread_local_hook", None)
        if tell is not None:
            tell(None if value is config.config_ext.unset else value)


class _Function:
    """A function of arrays, with the types of its arguments and results. `name` is the name of the
    JAX function that calls it. With `on_cpu` it gets arrays of JAX's CPU backend, if there is one;
    otherwise it gets NumPy arrays."""

    def __init__(self, name, function, avals_in, avals_out, on_cpu):
        self.name = name
        self.function = function
        self.avals_in = avals_in
        self.avals_out = avals_out
        self.on_cpu = on_cpu
        self.has_x64 = config.enable_x64.value  # a setting of the thread that makes the program
        self.number = next(_numbers)
        _known[self.number] = self

    def values(self, *arguments):
        device = cpu_device() if self.on_cpu else None
        if device is None:
            return self.function(*arguments)
        with jax.default_device(device):
            return self.function(*jax.device_put(arguments, device))

    def call(self, arguments, results):
        arguments = [_array(arguments[i], aval) for i, aval in enumerate(self.avals_in)]
        with _SettingsOfNewThread(), config.enable_x64(self.has_x64):
            given = [dtypes.canonicalize_value(np.asarray(value))
                     for value in self.values(*arguments)]
        _check(given, self.avals_out)
        for i, value in enumerate(given):
            value = np.ascontiguousarray(value)
            ctypes.memmove(results[i], value.ctypes.data, value.nbytes)


class _Inspection:
    """Gets the shard numbers of all devices as text when a program is partitioned. They may come
    several times; `tell` gets only the first ones."""

    def __init__(self, tell):
        self.name = "jax.debug.inspect_array_sharding"
        self.tell = tell
        self.number = next(_numbers)
        _known[self.number] = self

    def call(self, arguments, _):
        tell, self.tell = self.tell, None
        if tell is not None:
            text = ctypes.string_at(arguments[0]).decode()
            tell([tuple(map(int, filter(None, device.split(",")))) for device in text.split(";")])


def _lines(error):
    """The lines at which an exception was raised. (Python's traceback also parses the sources,
    which two threads cannot do at the same time in Python 3.11.)"""
    lines = []
    for frame, line in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        if code.co_filename != __file__:
            lines.append(f'  File "{code.co_filename}", line {line}, in {code.co_name}')
    return lines


def _log(name, text):
    """Logs the record that JAX would log, since libraries filter JAX's message."""
    logger = jax_callback.logger
    if logger.isEnabledFor(logging.ERROR):
        record = logger.makeRecord(logger.name, logging.ERROR, __file__, 0, "%s failed", (name,),
                                   None)
        record.exc_text = text
        logger.handle(record)


def _call(number, arguments, results, failure):
    function = _held[number][0]
    try:
        function.call(arguments, results)
    except BaseException as error:  # no exception may pass through the library
        text = f"{type(error).__name__}: {error}"
        lines = _lines(error)
        _log(function.name, "\n".join(["Traceback (most recent call last):", *lines, text]))
        text = "\n          ".join([text, *lines])
        _library.tessera_call_failed(failure, text.encode(errors="replace"))


def _hold(number):
    with _lock:
        function = _known.get(number)
        if function is None:
            return False
        _held.setdefault(number, [function, 0])[1] += 1
        return True


def _release(number):
    with _lock:
        _held[number][1] -= 1
        if _held[number][1] == 0:
            del _held[number]


def _end():
    """Called when Python ends: from then on no program may call a function."""
    try:
        jax.effects_barrier()
    finally:
        _library.tessera_set_python_calls(None)


def _physical(avals):
    return [core.physical_aval(aval) for aval in avals]


def _emit(ctx, name, function, arguments, *, has_effect, token=None, avals=None, on_cpu=True):
    """Appends the call of a function; returns its results, and the next token if there is one."""
    avals_in, avals_out = avals or (ctx.avals_in, ctx.avals_out)
    if not all(core.is_constant_shape(aval.shape) for aval in (*avals_in, *avals_out)):
        raise NotImplementedError(
            f"tessera: {name} calls a Python function, whose arguments and results must have known "
            "shapes\n"
            f"  found:  {', '.join(str(aval) for aval in (*avals_in, *avals_out))}\n"
            "  wanted: shapes without symbolic dimensions\n"
            "  cure:   export the program separately for each shape")
    called = _Function(name, function, _physical(avals_in), _physical(avals_out), on_cpu)
    ctx.module_context.add_keepalive(called)
    types = [ir.RankedTensorType.get(aval.shape, mlir.dtype_to_ir_type(np.dtype(aval.dtype)))
             for aval in called.avals_out]
    if token is not None:
        types = [hlo.TokenType.get(), *types]
        arguments = [token, *arguments]
    results = list(mlir.custom_call(
        "tessera.call_host", result_types=types, operands=list(arguments),
        backend_config=str(called.number), has_side_effect=has_effect).results)
    return (results, None) if token is None else (results[1:], results[0])


def emit_call(ctx, name, function, arguments):
    """Appends the call of a function without effects; returns its results."""
    return _emit(ctx, name, function, arguments, has_effect=False)[0]


def _emit_effect(ctx, name, function, arguments, effect):
    if not effects.ordered_effects.contains(effect):
        return _emit(ctx, name, function, arguments, has_effect=True)[0]
    results, token = _emit(ctx, name, function, arguments, has_effect=True,
                           token=ctx.tokens_in.get(effect))
    ctx.set_tokens_out(ctx.tokens_in.update_tokens(mlir.TokenSet({effect: token})))
    return results


def _check_axes(ctx, sharding):
    """Raises the errors of JAX for axes and shardings that callbacks do not support."""
    jax_callback._callback_op_sharding(ctx.module_context.axis_context, sharding, ctx.avals_out)


def _pure_callback(ctx, *args, callback, sharding, **_):
    _check_axes(ctx, sharding)
    return emit_call(ctx, "jax.pure_callback", callback, args)


def _io_callback(ctx, *args, callback, sharding, ordered, **_):
    _check_axes(ctx, sharding)
    effect = jax_callback._OrderedIOEffect if ordered else jax_callback._IOEffect
    return _emit_effect(ctx, "jax.io_callback", callback, args, effect)


def _debug_callback(ctx, *args, callback, effect, partitioned):
    if partitioned:
        raise NotImplementedError(
            "tessera: a callback cannot be called with the shards of its arguments\n"
            "  found:  partitioned=True\n"
            "  wanted: partitioned=False\n"
            "  cure:   call it in a shard_map, where each device calls it with its shard")

    def without_results(*values):
        callback(*values)
        return ()

    return _emit_effect(ctx, "jax.debug.callback", without_results, args, effect)


def _debug_print(ctx, *args, fmt, ordered, partitioned, in_tree, static_args, np_printoptions,
                 has_placeholders, logging_record):
    printing = functools.partial(debugging._format_print_callback, fmt, dict(np_printoptions),
                                 has_placeholders, logging_record)
    return _debug_callback(
        ctx, *args, callback=debugging._make_flat_callback(in_tree, printing, static_args),
        effect=debugging.ordered_debug_effect if ordered else debugging.debug_effect,
        partitioned=partitioned)


def _hlo_sharding(shards, count):
    """The sharding of `count` devices that hold these shards. A program without a mesh has the
    shards of one device."""
    tiles = sorted(set(shards))
    if len(tiles) == 1:
        return sharding_impls.replicated_hlo_sharding
    copies = count // len(tiles)
    proto = xla_client.OpSharding()
    proto.type = xla_client.OpSharding.Type.OTHER
    proto.tile_assignment_dimensions = [1 + max(places) for places in zip(*tiles)]
    proto.tile_assignment_devices = sorted(range(count), key=lambda device: shards[device])
    if copies > 1:
        proto.tile_assignment_dimensions = [*proto.tile_assignment_dimensions, copies]
        proto.replicate_on_last_tile_dim = True
    return xla_client.HloSharding.from_proto(proto)


def _inspect_sharding(ctx, value, *, callback):
    """Like JAX's own, but it gets shard numbers from the library instead of a sharding from XLA."""
    axis_context = ctx.module_context.axis_context
    if isinstance(axis_context, sharding_impls.SPMDAxisContext):  # the tiles of a shard_map
        callback(jax.sharding.NamedSharding(axis_context.mesh, jax.sharding.PartitionSpec()))
        return []
    devices = axis_context.device_assignment
    mesh = mesh_lib.thread_resources.env.physical_mesh
    if axis_context.abstract_mesh is not None:
        mesh = mesh_lib.Mesh(np.array(devices).reshape(axis_context.abstract_mesh.axis_sizes),
                             axis_context.abstract_mesh.axis_names)

    def tell(shards):
        sharding = _hlo_sharding(shards, len(devices))
        if mesh.empty:
            return callback(sharding_impls.GSPMDSharding(devices, sharding))
        spec = sharding_impls.parse_flatten_op_sharding(sharding, mesh)[0]
        return callback(jax.sharding.NamedSharding(mesh, spec))

    if len(devices) == 1:
        tell([()])
        return []
    inspection = _Inspection(tell)
    ctx.module_context.add_keepalive(inspection)
    mlir.custom_call("tessera.inspect_sharding", result_types=[], operands=[value],
                     backend_config=str(inspection.number), has_side_effect=True)
    return []


def _emit_python_callback(of_jax):
    """Wraps JAX's emit_python_callback, with which other primitives, in JAX and beyond, call
    functions."""
    @functools.wraps(of_jax)
    def emit(ctx, callback, token, operands, operand_avals, result_avals, *, has_side_effect,
             **options):
        if tuple(ctx.module_context.platforms) != ("tessera",):
            return of_jax(ctx, callback, token, operands, operand_avals, result_avals,
                          has_side_effect=has_side_effect, **options)
        results, token = _emit(ctx, getattr(callback, "__name__", "a callback"), callback,
                               operands, has_effect=has_side_effect, token=token,
                               avals=(operand_avals, result_avals), on_cpu=False)
        return results, token, None

    return emit


def _without_cpu(primitive):
    """Outside of jit, JAX runs this callback on its CPU backend. Without that backend, runs it as a
    program instead."""
    of_jax = primitive.impl

    def call(*args, **params):
        if cpu_device() is None:
            return dispatch.apply_primitive(primitive, *args, **params)
        return of_jax(*args, **params)

    primitive.def_impl(call)


def register(library_path):
    global _library, _calls
    _library = ctypes.CDLL(library_path)
    _library.tessera_set_python_calls.argtypes = [ctypes.POINTER(_Calls)]
    _library.tessera_call_failed.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    of_python = [ctypes.cast(function, ctypes.c_void_p) for function in
                 (ctypes.pythonapi.PyGILState_Check, ctypes.pythonapi.PyEval_SaveThread,
                  ctypes.pythonapi.PyEval_RestoreThread)]
    _calls = _Calls(_CALL(_call), _HOLD(_hold), _RELEASE(_release), *of_python)
    _library.tessera_set_python_calls(_calls)
    atexit.register(_end)
    for primitive, rule in ((jax_callback.pure_callback_p, _pure_callback),
                            (jax_callback.io_callback_p, _io_callback),
                            (debugging.debug_callback_p, _debug_callback),
                            (debugging.debug_print_p, _debug_print),
                            (debugging.inspect_sharding_p, _inspect_sharding),
                            (checkify.check_p, checkify.check_lowering_rule)):
        mlir.register_lowering(primitive, rule, platform="tessera")
    jax_callback.emit_python_callback = _emit_python_callback(jax_callback.emit_python_callback)
    _without_cpu(debugging.debug_callback_p)
    _without_cpu(debugging.debug_print_p)
