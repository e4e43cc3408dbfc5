"""The JSON Schemas accept what gridloom accepts, so that editors agree with it."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gridloom.wire.schema import DIALECT, grid_schema, job_schema
from gridloom.wire.source import read_source

EXAMPLES = Path(__file__).parents[3] / "examples"

HEAD = "name: j\nresources: {accelerators: cpu:4}\n"
RECIPE = HEAD + (
    "recipe: gpt\nmodel: {layers: 2, hidden: 64, heads: 4}\n"
    "global_batch: 2k\nsequence_length: 1_024\n"
)
GOOD_JOBS = [
    HEAD + "run: python t.py",
    HEAD + "run: |\n  a\n  b\ngrace: 1h30m\nbudget: {max_time: 2-12:30:00, max_cost: '3'}\n"
    "env: {A: 1, B: true, C: x}\nparallel: auto",
    RECIPE + "steps: 1e3\nmicro_batch: auto\nparallel: {data: auto}\ndata: {text: [a, b*]}",
    RECIPE + "tokens: 1.5M\nmicro_batch: 4\ngrace: 20 ms\noptimizer: {learning_rate: 3e-4}",
    HEAD.replace("cpu:4", "H100:4-16, sites: [a], max_sites: 2") + "run: x",
]
BAD_JOBS = [
    HEAD,
    RECIPE,
    RECIPE + "steps: 1\ntokens: 2",
    HEAD + "run: x\ngrace: soon",
    HEAD + "run: x\nresource: 1",
    HEAD + "run: ' '",
    HEAD.replace("cpu:4", "cpu:0") + "run: x",
    HEAD.replace("cpu:4", "4") + "run: x",
    HEAD.replace("name: j", "name: J") + "run: x",
    HEAD + "run: x\nenv: {1A: 2}",
    HEAD + "run: x\nretry: {on: never}",
]
GOOD_GRIDS = [
    "sites: {a: {accelerators: cpu:2, power_per_accelerator: 15 W, ports: 30000-30010}}",
    "sites: {a: {nodes: {n: {accelerators: h100:8, memory: 640 GiB}}, ports: 30000}}\n"
    "links: [{between: [a, b], bandwidth: 10Gbps, latency: 0.02}]",
]
BAD_GRIDS = [
    "sites: {}",
    "sites: {a: {}}",
    "sites: {a b: {accelerators: cpu}}",
    "sites: {a: {accelerators: cpu:2+}}",
    "sites: {a: {accelerators: cpu, power_per_accelerator: lots}}",
    "sites: {a: {accelerators: cpu}}\nlinks: [{between: [a, b], bandwidth: 10}]",
]


def errors(schema: dict[str, Any], text: str | bytes) -> list[str]:
    data = read_source(text if isinstance(text, bytes) else text.encode(), "f").data
    validator = jsonschema.Draft202012Validator(schema)
    return [error.message for error in validator.iter_errors(data)]


@pytest.mark.parametrize("schema", [job_schema(), grid_schema()], ids=["job", "grid"])
def test_they_are_schemas_and_say_what_every_field_is_for(schema: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == DIALECT
    json.dumps(schema)
    for definition in (schema, *schema["$defs"].values()):
        assert definition["description"]
        for name, field in definition["properties"].items():
            assert field.get("description") or "$ref" in field, name


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_the_examples_validate(path: Path) -> None:
    schema = grid_schema() if path.name == "two-sites.yaml" else job_schema()
    assert errors(schema, path.read_bytes()) == []


@pytest.mark.parametrize("text", GOOD_JOBS)
def test_good_jobs_validate(text: str) -> None:
    assert errors(job_schema(), text) == []


@pytest.mark.parametrize("text", BAD_JOBS)
def test_bad_jobs_do_not(text: str) -> None:
    assert errors(job_schema(), text)


@pytest.mark.parametrize("text", GOOD_GRIDS)
def test_good_grids_validate(text: str) -> None:
    assert errors(grid_schema(), text) == []


@pytest.mark.parametrize("text", BAD_GRIDS)
def test_bad_grids_do_not(text: str) -> None:
    assert errors(grid_schema(), text)
