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
    RECIPE + "steps: 1\nprecision: fp16\nparallel: {tensor: 2, zero: 3, sequence_parallel: true,"
    " recompute: full, recompute_layers: 1, offload: [activations], shard: 2, schedule: 1f1b}",
    RECIPE.replace(
        "heads: 4",
        "heads: 4, router_loss: 0, experts: {count: 4, per_token: 2, ffn: 64,"
        " shared_ffn: 32, shared_gate: true, dense_layers: 1}",
    )
    + "steps: 1",
    RECIPE + "steps: 1\nparallel: {pipeline: 2, stage_layers: [1, 1], offload: activations}",
    HEAD.replace("cpu:4", "H100:4-16, sites: [a], max_sites: 2") + "run: x",
    HEAD.replace(
        "cpu:4",
        "h100:8-16, nodes: ['a/n[1-4]', b/x], labels: {a: b}, ranks_per_node_max: 4,"
        " cpus_per_rank: 2, memory_per_rank: 64GB, per_rank: {nics: 1k}, spares: 0",
    )
    + "run: x\nqueue: q\nuser: a@b\nforecast: {duration: 3h, spread: 0}\ndeadline: 8h\n"
    "after: [a-1, {job: b-2, when: after}]\narray: 0-9%3\nelastic: true\npreemptible: false\n"
    "on_loss: wait\ndata: {sites: a, required: true}\n"
    "placement: {tensor: island, replica: {level: leaf, required: false}}",
    HEAD + "run: x\nafter: a-1\narray: 10\ndeadline: 2030-03-01 08:00:00 +0100",
    HEAD + "run: x\nafter: {job: a-1}\narray: 1,3-4\ndeadline: 2-00:00:00",
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
    HEAD + "run: x\nparallel: {zero: 4}",
    HEAD + "run: x\nparallel: {offload: [weights]}",
    HEAD + "run: x\nparallel: {stage_layers: 2}",
    RECIPE.replace("heads: 4", "heads: 4, experts: {count: 4}") + "steps: 1",
    HEAD + "run: x\nqueue: a b",
    HEAD + "run: x\nafter: [a b]",
    HEAD + "run: x\nafter: {when: afterok}",
    HEAD + "run: x\narray: 0",
    HEAD + "run: x\narray: a-b",
    HEAD + "run: x\ndeadline: 2030-03-01",
    HEAD + "run: x\non_loss: panic",
    HEAD + "run: x\nplacement: {tensor: Leaf}",
    HEAD + "run: x\nplacement: {all: leaf}",
    HEAD + "run: x\nplacement: {gang: {required: true}}",
    HEAD + "run: x\nforecast: {duration: soon}",
    HEAD.replace("cpu:4", "cpu:4, nodes: n1") + "run: x",
    HEAD.replace("cpu:4", "cpu:4, labels: {a: 1}") + "run: x",
    HEAD.replace("cpu:4", "cpu:4, memory_per_rank: 64") + "run: x",
    HEAD.replace("cpu:4", "cpu:4, per_rank: {a: -1}") + "run: x",
]
GOOD_GRIDS = [
    "sites: {a: {accelerators: cpu:2, power_per_accelerator: 15 W, ports: 30000-30010}}",
    "sites: {a: {nodes: {n: {accelerators: h100:8, memory: 640 GiB}}, ports: 30000}}\n"
    "links: [{between: [a, b], bandwidth: 10Gbps, latency: 0.02}]",
    "sites: {a: {levels: [s, r], node: {accelerators: h100:8, address: 'n[1-4].x', island: 4},"
    " nodes: {'n[1-4]': {path: [s1, 'r[1-2]']}, m: {path: [s1, r1], address: 'fe80::1'}}}}",
    "sites: {a: {levels: r, nodes: {n: {path: r1, accelerators: cpu,"
    " labels: {a: b}, resources: {cpus: 4, memory: 8GB, nics: 2}}}, queues: q, carbon: 3 g/kWh}}",
    "sites: {a: {topology: {rack: 4, node: 2k}, node: {accelerators: cpu}, carbon: 3}}\n"
    "queues: {q: {cohort: c, nominal: {h100: 64}, borrow_max: {}, lend_max: {h100: 1}, weight: 2,"
    " order: strict, reclaim: false, accelerator_hours: 3, period: 7d}, r: {}}\n"
    "cohorts: {c: {parent: d, nominal: {a: 1}}, d: {}}\npolicy: fair + elastic\n"
    "bookings: [{name: x, from: 2030-03-01T08:00Z, to: 5, sites: a, queues: q, for: y}]",
    "sites: {a: {accelerators: cpu}}\npolicy: {base: las, attained_steps: [1h, 2h], elastic: true,"
    " weights: {carbon: 1}, preemption: {min_run: 1m, order: true}, blocked: hold}\n"
    "bookings: [{name: x, from: 1, to: 5, nodes: ['a/n[1-2]']}]",
]
BAD_GRIDS = [
    "sites: {}",
    "sites: {a: {}}",
    "sites: {a b: {accelerators: cpu}}",
    "sites: {a: {accelerators: cpu:2+}}",
    "sites: {a: {accelerators: cpu, power_per_accelerator: lots}}",
    "sites: {a: {accelerators: cpu}}\nlinks: [{between: [a, b], bandwidth: 10}]",
    "sites: {a: {nodes: {n: {}}}}",
    "sites: {a: {nodes: {n: {accelerators: cpu}}, topology: {node: 2}, node: {accelerators: cpu}}}",
    "sites: {a: {topology: {node: 2}}}",
    "sites: {a: {topology: {node: 2}, node: {island: 2}}}",
    "sites: {a: {topology: {Node: 2}, node: {accelerators: cpu}}}",
    "sites: {a: {topology: {node: 0}, node: {accelerators: cpu}}}",
    "sites: {a: {nodes: {n/1: {accelerators: cpu}}}}",
    "sites: {a: {nodes: {n: {accelerators: cpu, resources: {cpus: -1}}}}}",
    "sites: {a: {nodes: {n: {accelerators: cpu, resources: {nics: x}}}}}",
    "sites: {a: {accelerators: cpu, carbon: dirty}}",
    "sites: {a: {accelerators: cpu}}\nqueues: {q: {nominal: 3}}",
    "sites: {a: {accelerators: cpu}}\nqueues: {q: {nominal: {h100: -1}}}",
    "sites: {a: {accelerators: cpu}}\nqueues: {a b: {}}",
    "sites: {a: {accelerators: cpu}}\ncohorts: {c: {order: strict}}",
    "sites: {a: {accelerators: cpu}}\npolicy: fiar",
    "sites: {a: {accelerators: cpu}}\npolicy: {order: none}",
    "sites: {a: {accelerators: cpu}}\nbookings: [{name: x, from: 2030-03-01, to: 5, sites: a}]",
    "sites: {a: {accelerators: cpu}}\nbookings: [{name: x, start: 1, end: 5, sites: a}]",
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
    schema = grid_schema() if b"\nsites:" in path.read_bytes() else job_schema()
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
