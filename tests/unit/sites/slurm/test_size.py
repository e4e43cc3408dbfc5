"""How large users' batch scripts are."""

import pytest
from msgspec.structs import replace

from gridloom.model.inventory import CPU, Node, SlurmAccess
from gridloom.sites.slurm.sbatch_file import parse
from gridloom.sites.slurm.size import size_of

A100 = Node(name="n1", address="", accelerator="a100", count=8)
CORES = Node(name="c1", address="", accelerator=CPU, count=16)
NAMED = SlurmAccess(gres={"a100": "gpu:ampere", "gaudi2": "hpu"})


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ("-N 4 --gpus-per-node=8", (4, 8)),
        ("-N 4 --gres=gpu:a100:4,tmpdisk:9", (4, 4)),
        ("-N 4 --gres=gpu:ampere:4", (4, 4)),
        ("-N 4 --gres=gpu:h100:4", None),
        ("-N 4 --gres=tmpdisk:9", None),
        ("--gres=gpu:2", (1, 2)),
        ("--gpus=16", (2, 8)),
        ("--gpus=a100:3", (1, 3)),
        ("-N 3 --gpus=16", (3, 6)),
        ("-n 16 --ntasks-per-node=8 --gpus-per-task=1", (2, 8)),
        ("-n 12 --gpus-per-task=a100:1", (2, 6)),
        ("-N 2", None),
    ],
)
def test_on_nodes_with_devices(options: str, found: tuple[int, int] | None) -> None:
    size = size_of(parse(f"#!/bin/bash\n#SBATCH {options}\n"))
    assert size.on("a100", A100, NAMED) == found


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ("-J x", (1, 1)),
        ("-N 2 --ntasks-per-node=4 -c 2", (2, 8)),
        ("-N 2 -n 5", (2, 3)),
        ("-n 40", (3, 14)),
        ("-n 8 -c 4", (2, 16)),
        ("-c 12", (1, 12)),
        ("--gpus=1", None),
        ("--gres=tmpdisk:9", (1, 1)),
        ("--gres=shard:2", None),
        ("-c 17", None),
        ("-N 1 -n 17", None),
    ],
)
def test_on_nodes_of_processors(options: str, found: tuple[int, int] | None) -> None:
    assert size_of(parse(f"#!/bin/bash\n#SBATCH {options}\n")).on(CPU, CORES, NAMED) == found


def test_devices_that_slurm_does_not_call_gpu() -> None:
    size = size_of(parse("#!/bin/bash\n#SBATCH -N 2 --gres=hpu:8\n"))
    gaudi = Node(name="g1", address="", accelerator="gaudi2", count=8)
    assert size.on("gaudi2", gaudi, NAMED) == (2, 8)
    assert size.on("a100", A100, NAMED) is None


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ("-J x", (1, 1)),
        ("-c 8", (1, 1)),
        ("-c 9", (1, 2)),
        ("-N 2 --ntasks-per-node=4 -c 8", (2, 4)),
        ("-n 65", (2, 5)),
        ("-N 3 --gres=tmpdisk:9", (3, 1)),
        ("-c 65", None),
        ("--gpus=1", None),
        ("--gres=shard:2", None),
    ],
)
def test_processors_beside_devices_count_as_their_share(
    options: str, found: tuple[int, int] | None
) -> None:
    size = size_of(parse(f"#!/bin/bash\n#SBATCH {options}\n"))
    assert size.beside_devices(replace(A100, resources={"cpus": 64})) == found


def test_where_processors_are_not_known_one_device_stands_for_them() -> None:
    assert size_of(parse("#!/bin/bash\n#SBATCH -n 65\n")).beside_devices(A100) == (1, 1)
