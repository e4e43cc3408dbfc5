"""Ports that others use: the run says so, and says what helps."""

import socket

import pytest
from tests.scenarios.conftest import Stage

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def test_port_in_use_is_a_clear_failure(stage: Stage) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        grid = {"sites": {"one": {"accelerators": "cpu:1", "ports": f"{port}-{port}"}}}
        stage.write("grid.yaml", grid)
        job = {
            "name": "port",
            "run": "true",
            "grid": "grid.yaml",
            "resources": {"accelerators": "cpu:1"},
            "retry": {"max_restarts": 0},
        }
        facts = stage.run(job, code=1)
    assert facts["state"] == "failed"
    assert facts["reason"]["code"] == "refused"
    assert f"{port}-{port}" in facts["reason"]["sentence"]
    assert "ports" in facts["reason"]["remedy"]


def test_port_outside_the_machine_is_a_clear_failure(stage: Stage) -> None:
    node = {"address": "192.0.2.1", "accelerators": "cpu:1"}  # TEST-NET-1: nobody's address
    stage.write("grid.yaml", {"sites": {"one": {"nodes": {"n": node}}}})
    job = {
        "name": "address",
        "run": "true",
        "grid": "grid.yaml",
        "resources": {"accelerators": "cpu:1"},
        "retry": {"max_restarts": 0},
    }
    facts = stage.run(job, code=1)
    assert "192.0.2.1" in facts["reason"]["sentence"]
