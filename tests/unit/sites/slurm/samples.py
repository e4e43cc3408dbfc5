"""What Slurm said, as bytes and as text: see the page beside the files."""

from pathlib import Path

DATA = Path(__file__).parents[3] / "data" / "slurm"


def raw(name: str) -> bytes:
    return (DATA / name).read_bytes()


def text(name: str) -> str:
    return raw(name).decode()
