"""What is published of the Acme clusters: which kinds of jobs, how long, how large, how they end.

Source: InternLM/AcmeTrace, ``figure/*.pdf`` and ``data/cluster_summary.csv`` (CC-BY-4.0), of
Q. Hu et al., "Characterization of Large Language Model Development in the Datacenter", NSDI '24.
The curves were digitised from the vector graphics, to about 0.05 points.
"""

from typing import NamedTuple

Points = tuple[float, ...]
"""Percent of jobs that run for at most 1, 2, 4, ... s; all of them after the last."""


class Kind(NamedTuple):
    """One kind of jobs.

    Attributes:
        name: What it is called.
        share: Of the cluster's jobs. Not printed as numbers for all kinds: it is what makes the
            kinds' curves add up to that of all jobs (least squares, to 0.01 points); where the
            paper prints it, it is the same: Kalos evaluation 92.9 %, pretraining 3.2 %, Seren
            pretraining 0.9 %.
        duration_pct: Its curve of durations.
    """

    name: str
    share: float
    duration_pct: Points


class Size(NamedTuple):
    """One size of jobs, in devices.

    Attributes:
        devices: How many; sizes between this and the next are counted as this.
        jobs_pct: Percent of jobs that are at most as large.
        time_pct: Percent of the device-time that they take.
    """

    devices: int
    jobs_pct: float
    time_pct: float


class Ending(NamedTuple):
    """One way for a job to end: its share of jobs, and of device-time."""

    state: str
    jobs: float
    time: float


class Cluster(NamedTuple):
    """One cluster.

    Attributes:
        devices: It has.
        kinds: Of jobs.
        sizes: Smallest first.
        endings: Of jobs.
    """

    devices: int
    kinds: tuple[Kind, ...]
    sizes: tuple[Size, ...]
    endings: tuple[Ending, ...]


SEREN = Cluster(
    devices=2288,
    kinds=(
        Kind("evaluation", 0.6485, (
            2.307, 2.922, 5.215, 10.569, 25.177, 32.782, 37.375, 49.747, 67.169, 79.966, 88.797,
            93.855, 96.526, 98.19, 99.062, 99.572, 99.79, 99.909, 99.964, 99.988, 99.998, 100,
        )),
        Kind("pretrain", 0.0089, (
            4.272, 5.713, 9.861, 12.096, 15.599, 20.492, 27.372, 34.873, 46.796, 61.798, 73.423,
            80.452, 84.078, 86.612, 88.45, 91.083, 94.312, 97.193, 98.783, 99.627, 99.975, 100,
        )),
        Kind("sft", 0.1487, (
            1.018, 1.487, 3.464, 6.56, 12.623, 21.675, 27.59, 37.515, 57.608, 78.797, 89.27,
            94.485, 97.337, 98.637, 99.158, 99.515, 99.798, 99.924, 99.977, 99.994, 100,
        )),
        Kind("mllm", 0.0295, (
            2.092, 3.07, 5.095, 9.407, 14.697, 27.371, 33.444, 40.849, 50.173, 66.842, 79.703,
            85.611, 89.163, 91.3, 92.911, 97.313, 98.878, 99.465, 99.827, 99.985, 99.985, 100,
        )),
        Kind("debug", 0.0187, (
            3.684, 4.617, 6.317, 11.725, 19.341, 29.803, 39.131, 52.155, 68.367, 81.946, 91.215,
            95.501, 97.355, 98.288, 98.807, 99.22, 99.563, 99.787, 99.858, 99.964, 99.988, 100,
        )),
        Kind("other", 0.1457, (
            2.495, 3.022, 9.391, 22.829, 29.085, 39.022, 46.811, 58.884, 70.911, 79.48, 85.533,
            89.202, 94.189, 95.319, 96.649, 98.007, 99.311, 99.626, 99.835, 99.937, 99.992, 100,
        )),
    ),
    sizes=(
        Size(1, 54.038, 1.349), Size(2, 65.426, 1.792), Size(4, 67.991, 2.39),
        Size(8, 96.755, 11.922), Size(16, 97.908, 13.213), Size(32, 98.904, 19.291),
        Size(64, 99.356, 28.692), Size(128, 99.575, 43.616), Size(256, 99.78, 64.149),
        Size(512, 99.877, 69.868), Size(768, 99.958, 87.403), Size(1024, 100, 100),
    ),
    endings=(
        Ending("completed", 0.497, 0.212),
        Ending("cancelled", 0.075, 0.664),
        Ending("failed", 0.429, 0.124),
    ),
)  # fmt: skip
"""2288 NVIDIA A100, research of all kinds."""

KALOS = Cluster(
    devices=2416,
    kinds=(
        Kind("evaluation", 0.9279, (
            0, 0, 0, 0.011, 1.532, 19.512, 39.917, 52.666, 71.815, 81.159, 87.028, 93.795, 98.056,
            99.599, 99.837, 99.978, 99.978, 100,
        )),
        Kind("pretrain", 0.0329, (
            0, 0, 0, 0, 0, 4.212, 9.828, 14.353, 25.741, 43.838, 57.098, 65.366, 71.919, 76.911,
            82.371, 87.831, 93.292, 96.724, 98.908, 99.844, 100,
        )),
        Kind("debug", 0.0268, (
            0, 0, 0, 0, 1.304, 8.38, 17.318, 25.885, 38.734, 70.763, 88.827, 97.207, 99.069,
            99.627, 99.814, 100,
        )),
        Kind("other", 0.0125, (
            0, 0, 0, 0, 2, 20.4, 29.2, 35.2, 46.4, 64.8, 75.2, 79.2, 84, 85.2, 87.6, 90, 92.8,
            95.6, 98.8, 98.8, 100,
        )),
    ),
    sizes=(
        Size(1, 86.281, 0.153), Size(2, 88.356, 0.16), Size(8, 93.917, 0.624),
        Size(16, 94.258, 0.639), Size(32, 94.65, 1.959), Size(64, 95.338, 3.518),
        Size(128, 95.68, 3.746), Size(256, 97.202, 36.722), Size(512, 98.96, 64.252),
        Size(1024, 100, 100),
    ),
    endings=(
        Ending("completed", 0.541, 0.313),
        Ending("cancelled", 0.062, 0.607),
        Ending("failed", 0.397, 0.08),
    ),
)  # fmt: skip
"""2416 NVIDIA A100, mostly for pretraining. Its durations count the wait in, with a median of 17 s;
device-time of one and two devices, which the figure shows as one, is split by devices."""

CLUSTERS = {"seren": SEREN, "kalos": KALOS}
"""By name."""
