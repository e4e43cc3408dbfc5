"""What a job over sites of three kinds would hand to each: golden texts.

Run as a program it writes them anew.
"""

import tempfile
from pathlib import Path

from tests.fakes.clock import CountingIds

from gridloom.cli.dry_run import as_text, handouts
from gridloom.cli.prepare import prepare
from gridloom.cli.settings import Settings

DIRECTORY = Path(__file__).parent / "dry_run"

_GRID = """
sites:
  hpc:
    kind: slurm
    nodes: {"n[1-2]": {accelerators: "a100:4"}}
    slurm:
      account: physics
      partition: gpu
      time_limit: 2h
      gres: {a100: gpu:a100}
      environment: {SLURM_CONF: /etc/slurm/b.conf}
  far:
    kind: slurm
    accelerators: a100:4
    slurm:
      python: /opt/gridloom/bin/python
      rest: {url: "https://login.example.org:6820", user: ann, token_file: /data/ann/token}
  cloud:
    kind: kubernetes
    accelerators: a100:4
    kubernetes:
      namespace: team
      image: registry.example/gridloom:1
      queue: ours
      runs: {claim: runs}
  away:
    kind: slurm
    accelerators: a100:4
    slurm: {partition: gpu, ssh: {host: login.example.org, directory: /scratch/ann}}
  lab: {accelerators: a100:4}
"""
_JOB = """
name: train
run: sleep 60
resources: {accelerators: "a100:24", sites: [hpc, far, cloud, away, lab], min_sites: 5}
"""


def texts() -> dict[str, str]:
    """Return the texts, by the name of their file."""
    with tempfile.TemporaryDirectory() as place:
        for name, text in (("grid.yaml", _GRID), ("job.yaml", _JOB)):
            (Path(place) / name).write_text(text)
        settings = Settings(home=Path("/state"), grid=Path(place) / "grid.yaml")
        prepared = prepare(Path(place) / "job.yaml", None, settings, CountingIds())
        made = handouts(prepared, settings, "/opt/python")
    return {f"{one.site}.txt": as_text(one) for one in made}


if __name__ == "__main__":
    for name, text in texts().items():
        (DIRECTORY / name).write_text(text, encoding="utf-8")
