"""How a site's Slurm is reached, from the grid file on."""

from gridloom.model.inventory import SlurmAccess, SlurmContainer, SlurmRest
from gridloom.wire.convert import to_inventory
from gridloom.wire.documents import read_grid

GRID = """
sites:
  hpc:
    kind: slurm
    accelerators: cpu:2
    slurm:
      network: 10.0.0.0/8
      rest:
        url: https://login:6820/
        user: alice
        token_command: ssh login "scontrol token"
        ca_file: ~/ca.pem
"""


def test_a_slurmrestd() -> None:
    (site,) = to_inventory(read_grid(GRID.encode(), "grid.yaml").document).sites
    assert site.slurm == SlurmAccess(
        network="10.0.0.0/8",
        rest=SlurmRest(
            url="https://login:6820",
            user="alice",
            token_command=("ssh", "login", "scontrol token"),
            ca_file="~/ca.pem",
        ),
    )


def test_nodes_and_a_container() -> None:
    said = """
sites:
  hpc:
    kind: slurm
    accelerators: cpu:2
    slurm:
      switches: 1
      switches_wait: 50m
      segment: 4
      exclusive: true
      memory: 512GiB
      container:
        engine: apptainer
        image: /images/a.sif
        mounts: {/data: /scratch/data}
        gpus: amd
"""
    (site,) = to_inventory(read_grid(said.encode(), "grid.yaml").document).sites
    assert site.slurm == SlurmAccess(
        switches=1,
        switches_wait_s=3000.0,
        segment=4,
        exclusive=True,
        memory_bytes=2**39,
        container=SlurmContainer(
            engine="apptainer", image="/images/a.sif", mounts={"/data": "/scratch/data"}, gpus="amd"
        ),
    )
    plain = said.replace("apptainer", "pyxis").replace("        gpus: amd\n", "")
    (site,) = to_inventory(read_grid(plain.encode(), "grid.yaml").document).sites
    assert site.slurm is not None
    assert site.slurm.container is not None
    assert (site.slurm.container.engine, site.slurm.container.gpus) == ("pyxis", "")
    nvidia = said.replace("amd", "nvidia")
    (site,) = to_inventory(read_grid(nvidia.encode(), "grid.yaml").document).sites
    assert site.slurm is not None
    assert site.slurm.container is not None
    assert site.slurm.container.gpus == "nvidia"
