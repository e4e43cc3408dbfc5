"""How a site's Slurm is reached, from the grid file on."""

from gridloom.model.inventory import SlurmAccess, SlurmRest
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
