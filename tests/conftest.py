"""What all tests share: hypothesis profiles, and what of them is measured.

The profile is chosen with ``--hypothesis-profile``.
"""

import contextlib
import gc
import sys
import threading
from collections.abc import Iterator
from importlib import import_module

import pytest
from hypothesis import HealthCheck, settings

_SLOW_MACHINE = [HealthCheck.too_slow]
_UNMEASURED = (
    "tests/house/", "tests/property/", "tests/scenarios/", "tests/unit/fakes/", "tests/world/",
)  # fmt: skip
"""Where tests come by the same lines again and again, most of which others come by, too, or by
none of gridloom's."""
_ALONE = "tests/unit/cli/"
"""Where the processes that tests start are not measured: what they do is done within tests, too."""
_MEASURED = "tests/property/test_core_machine_laws.py"
"""What alone comes by some of the lines that check laws."""

settings.register_profile(
    "default", max_examples=20, deadline=None, derandomize=True, suppress_health_check=_SLOW_MACHINE
)
settings.register_profile(
    "long",
    max_examples=2000,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=_SLOW_MACHINE,
)
settings.load_profile("default")

gc.disable()

LOADED = ("torch.distributed.fsdp", "torch._dynamo", "scipy.stats", "sqlalchemy", "pydantic")
"""What takes twice as long to load while coverage is measured, and is no part of it."""


@contextlib.contextmanager
def unmeasured() -> Iterator[None]:
    """Measure the coverage of nothing meanwhile."""
    tracer, of_threads = sys.gettrace(), threading.gettrace()
    sys.settrace(None)
    threading.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracer)
        threading.settrace(of_threads)


def pytest_collection(session: pytest.Session) -> None:
    if session.config.getoption("numprocesses", None):  # other processes run the tests
        sys.settrace(None)
        threading.settrace(None)
    elif sys.gettrace() is not None:
        with unmeasured():
            for name in LOADED:
                import_module(name)


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem() -> Iterator[None]:
    if sys.gettrace() is None:
        return (yield)
    with unmeasured():
        return (yield)


def pytest_collection_finish() -> None:
    """Let the collector look at nothing that was there before the first test.

    Modules and tests stay to the end; looking them through again and again takes a quarter of the
    time that they take to load.
    """
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Do not measure the coverage of some tests: they and their processes take half the time."""
    is_unmeasured = item.get_closest_marker("unmeasured") or (
        item.nodeid.startswith(_UNMEASURED) and not item.nodeid.startswith(_MEASURED)
    )
    if sys.gettrace() is None or not (is_unmeasured or item.nodeid.startswith(_ALONE)):
        return (yield)
    with contextlib.ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)
        if is_unmeasured:
            stack.enter_context(unmeasured())
        return (yield)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what long tests have counted: they note it as the property ``counted``."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == "counted":
                terminalreporter.write_line(str(value))
