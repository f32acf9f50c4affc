"""pytest -p jax_suite: runs JAX's own tests on Tessera, with the element types that Tessera has and
a time limit per test. Writes the outcome of each test and its CPU time in seconds as a JSON line to
the file that OUTCOMES names."""
import json
import os
import re
import signal
import time
import unittest

import ml_dtypes
import numpy as np
import pytest

DTYPES = {np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32,
          np.uint64, np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.complex64,
          np.complex128, ml_dtypes.float8_e3m4, ml_dtypes.float8_e4m3, ml_dtypes.float8_e4m3b11fnuz,
          ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2,
          ml_dtypes.float8_e5m2fnuz, ml_dtypes.float8_e8m0fnu, ml_dtypes.float4_e2m1fn}
X64 = {np.int64, np.uint64, np.float64, np.complex128}
# JAX skips these unless it knows that the platform has callbacks or shardings of factorisations.
CPU_TESTS = ("python_callback_test", "debugger_test", "linalg_sharding_test",
             "async_collectives_test", "buffer_callback_test")
SECONDS = int(os.environ.get("TEST_SECONDS", "40"))
outcome = None


def pytest_configure(config):
    del config
    import jax
    from absl.testing import parameterized
    from jax._src import test_util

    test_util.supported_dtypes = lambda: DTYPES - (set() if jax.config.jax_enable_x64 else X64)
    matches = test_util.test_device_matches
    test_util.test_device_matches = lambda types: matches(types) or (
        "cpu" in types and outcome is not None and outcome["test"].startswith(
            tuple(f"tests/{name}.py" for name in CPU_TESTS)))
    decorate = parameterized._parameter_decorator

    def decorate_or_skip(*args):
        try:
            return decorate(*args)
        except parameterized.NoTestsError:
            return unittest.skip("no case of these types")

    parameterized._parameter_decorator = decorate_or_skip
    signal.signal(signal.SIGALRM, stop)


def stop(*_):
    raise TimeoutError("the time limit of a test")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    global outcome
    outcome = {"test": item.nodeid, "outcome": "?", "why": ""}
    signal.alarm(SECONDS)
    start = time.process_time()
    yield
    signal.alarm(0)
    outcome["seconds"] = round(time.process_time() - start, 2)
    with open(os.environ["OUTCOMES"], "a") as file:
        file.write(json.dumps(outcome) + "\n")
    outcome = None


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    del item
    report = (yield).get_result()
    if outcome is None or (report.when != "call" and report.outcome == "passed"):
        return
    outcome["outcome"] = report.outcome
    if report.outcome == "failed":
        outcome["why"] = reason_of(call.excinfo)
    elif report.outcome == "skipped" and call.excinfo:
        outcome["why"] = str(call.excinfo.value)[:120]


def reason_of(excinfo):
    text = str(excinfo.value)
    mistake = re.search(r"(UNIMPLEMENTED|INTERNAL|INVALID_ARGUMENT): ([^\n]*)"
                        r"(?:\n  where: [^\n]*)?(?:\n  found: *([^\n]*))?", text)
    if mistake:
        return f"{mistake[2]}: {mistake[3] or ''}"[:240]
    return f"{type(excinfo.value).__name__}: {text[:240]}"
