"""Reader of Sia's workloads: which application was submitted when, on how many replicas.

Source of the columns: siasosp23/artifacts, ``sia-simulator/workloads`` and, for measured step
times, ``sia-simulator/traces/*/placements-*.csv``. A row has no duration: that is the number of
iterations to the end of training times the step time.
"""

from collections import Counter
from itertools import pairwise

import msgspec

from gridloom.base.errors import InputError, Problem
from gridloom.sim.workload_nouns import ReadOptions, Workload
from gridloom.sim.workload_rows import Collector, Draft, RowError, Table, number, whole
from gridloom.sim.workload_shapes import Steps, scaled

_BATCH_MAX = 10_000_000
_REPLICAS_MAX = 64  # 16 nodes of 4, the largest that was measured


class _Application(msgspec.Struct, frozen=True):
    """How fast one application trains on nodes of 4 NVIDIA T4.

    A step takes ``start_s + sample_s x samples of a replica``, and between replicas
    ``sync_s + sync_more_s x (replicas - 2)`` more, in one node or between nodes: the form of
    Pollux (OSDI '21), fitted by least relative squares to the step times of petuum/adaptdl
    (osdi21-artifact, ``simulator/traces/*/placements.csv``, Apache-2.0); mean relative errors
    are 1-15 %.

    Attributes:
        iterations: By global batch, until the epochs that Pollux trains (``validation-*.csv``
            there); of 4096, 1600 and 3200 projected from the next smaller batch by its measured
            gradient noise, with Pollux's formula.
        samples: Fewest and most that a replica takes at once; above it accumulates.
        start_s: Of a step, whatever the batch.
        sample_s: Of one sample.
        in_node: ``sync_s`` and ``sync_more_s`` within a node.
        between: The same between nodes.
    """

    iterations: tuple[tuple[int, int], ...]
    samples: tuple[int, int]
    start_s: float
    sample_s: float
    in_node: tuple[float, float]
    between: tuple[float, float]


_NODE = 4
_APPLICATIONS = {
    "bert": _Application(
        ((384, 480),), (4, 12), 0.2095, 0.05827, (0.02852, 0.02105), (0.7502, 0.02282)
    ),
    "cifar10": _Application(
        ((2048, 3178), (4096, 1983)), (32, 1024), 0.01989, 0.0006496, (0.008208, 0.001867),
        (0.0628, 0.002326),
    ),
    "deepspeech2": _Application(
        ((320, 2264), (640, 1423)), (10, 80), 0.1894, 0.02548, (0.05869, 0.0514),
        (0.2322, 0.02312),
    ),
    "imagenet": _Application(
        ((800, 150231), (1600, 79184), (3200, 43660)), (20, 200), 0.07064, 0.004314,
        (0.003183, 0.006028), (0.0977, 0.005333),
    ),
    "ncf": _Application(
        ((1024, 48625),), (32, 32768), 0.007215, 4.564e-07, (0.003035, 0.001137),
        (0.01422, 0.0004981),
    ),
    "yolov3": _Application(
        ((64, 14577),), (4, 8), 0.1736, 0.02651, (0.03838, 0.07393), (0.537, 0.02931)
    ),
}  # fmt: skip

Curve = list[tuple[int, float, float]]
"""Samples of a replica, seconds of a step, seconds of it that replicas wait for each other."""


class _Speeds:
    """Step times: as measured where there are profiles, else by the fit."""

    def __init__(self, options: ReadOptions) -> None:
        self._curves = _curves(options) if options.profiles else None
        self._node = _NODE
        if self._curves is not None:
            self._node = max(int(digit) for _, place in self._curves for digit in place)

    def step_s(self, name: str, replicas: int, batch: int) -> float:
        """Return seconds of a training step on as few nodes as the replicas fit on.

        Raises:
            RowError: That was not measured.
        """
        samples = -(-batch // replicas)
        if self._curves is None:
            return _fitted_s(_APPLICATIONS[name], replicas, samples)
        full, rest = divmod(replicas, self._node)
        place = (str(rest) if rest else "") + str(self._node) * full
        curve = self._curves.get((name, place))
        if curve is None:
            sentence = f"no measured step time of {name} on {replicas} devices"
            raise RowError("missing_duration", sentence, "num_replicas")
        return _measured_s(curve, samples)


def read_sia(text: str, file: str, options: ReadOptions) -> Workload:
    """Return the jobs of one of Sia's workloads; an application is a queue.

    Args:
        text: The workload, or several with columns ``source`` and ``workload``.
        file: Its name, for errors.
        options: With ``profiles``, step times are those measured on ``cluster``; with
            ``elastic``, jobs may also run on other numbers of replicas; ``part`` chooses one of
            several workloads.

    Raises:
        InputError: A column is missing, no row is usable, or there is no such part.
    """
    table, out = Table(text, file=file), Collector("sia", file, options)
    name, time = table.required("name"), table.required("time")
    app, batch_size = table.required("application"), table.required("batch_size")
    replicas = table.required("num_replicas")
    source, index = table.column("source"), table.column("workload")
    speeds = _Speeds(options)
    parts: Counter[str] = Counter()

    def make(row: int, cells: list[str]) -> Draft:
        part = f"{cells[source]}/{cells[index]}" if source >= 0 and index >= 0 else ""
        parts[part] += 1
        if part != (options.part or next(iter(parts))):
            raise RowError("other_workload", f"belongs to the workload {part}", "workload")
        if cells[app] not in _APPLICATIONS:
            known = ", ".join(_APPLICATIONS)
            sentence = f"{cells[app]!r} is none of the applications {known}"
            raise RowError("unknown_application", sentence, "application")
        devices, batch = whole(cells[replicas], "num_replicas"), whole(cells[batch_size], "batch")
        if devices < 1 or batch < 1:
            raise RowError("no_devices", f"{devices} replicas of a batch of {batch}", "replicas")
        if max(devices, batch) > _BATCH_MAX:
            sentence = f"{devices:.3g} replicas of a batch of {batch:.3g}"
            raise RowError("out_of_range", sentence, "batch_size")
        steps = _steps(speeds, cells[app], devices, batch, elastic=options.elastic)
        return Draft(
            row=row,
            job_id=cells[name],
            submit_s=number(cells[time], "time"),
            work_s=steps[0][1] * _iterations(_APPLICATIONS[cells[app]], batch),
            steps=steps,
            queue=cells[app],
        )

    out.read(table.rows(out), make)
    _note(out, parts)
    return out.workload()


def _note(out: Collector, parts: Counter[str]) -> None:
    asked = out.options.part
    if asked and asked not in parts:
        known = f"one of {', '.join(parts)}" if any(parts) else "none: the file is one workload"
        raise InputError((Problem(f"has no part {asked}", f"choose {known}", file=out.file),))
    if len(parts) > 1:
        chosen = asked or next(iter(parts))
        out.notes.append(f"of {len(parts)} workloads in the file, {chosen} was read")
    out.notes.append(
        f"durations are iterations times step times measured on {out.options.cluster}"
        if out.options.profiles
        else "durations are iterations times step times fitted to nodes of 4 NVIDIA T4"
    )


def _steps(speeds: _Speeds, name: str, devices: int, batch: int, *, elastic: bool) -> Steps:
    own = (devices, speeds.step_s(name, devices, batch))
    if not elastic:
        return (own,)
    most = min(_REPLICAS_MAX, batch // _APPLICATIONS[name].samples[0])
    steps = [own]
    for count, _ in scaled(devices, 1, max(devices, most))[1:]:
        try:
            steps.append((count, speeds.step_s(name, count, batch)))
        except RowError:  # not measured: not offered
            continue
    return tuple(steps)


def _iterations(application: _Application, batch: int) -> float:
    """Return iterations to the end: of the nearest known batch, with as many samples in all."""
    known, count = min(application.iterations, key=lambda item: (abs(item[0] - batch), item[0]))
    return count * known / batch


def _fitted_s(application: _Application, replicas: int, samples: int) -> float:
    passes = -(-samples // application.samples[1])
    compute_s = passes * application.start_s + samples * application.sample_s
    if replicas == 1:
        return compute_s
    sync_s, more_s = application.in_node if replicas <= _NODE else application.between
    return compute_s + sync_s + more_s * (replicas - 2)


def _measured_s(curve: Curve, samples: int) -> float:
    """Return a step time from a curve: linear between points, accumulated above its end."""
    passes = -(-samples // curve[-1][0])
    each = max(curve[0][0], samples / passes)
    step_s, sync_s = curve[-1][1:]
    for (low, low_s, low_sync_s), (high, high_s, high_sync_s) in pairwise(curve):
        if low <= each <= high:
            share = (each - low) / (high - low)
            step_s = low_s + share * (high_s - low_s)
            sync_s = low_sync_s + share * (high_sync_s - low_sync_s)
            break
    return passes * step_s - (passes - 1) * sync_s


def _curves(options: ReadOptions) -> dict[tuple[str, str], Curve]:
    """Return the measured curves of one kind of cluster, by application and placement.

    Raises:
        InputError: A column is missing, a row is wrong, or the cluster has none.
    """
    table, out = Table(options.profiles, file="profiles"), Collector("sia", "profiles", options)
    app, cluster, place = (table.required(c) for c in ("app", "cluster_type", "placement"))
    batch, step, sync = (table.required(c) for c in ("local_bsz", "step_time", "sync_time"))
    curves: dict[tuple[str, str], Curve] = {}
    clusters: dict[str, None] = {}

    def make(row: int, cells: list[str]) -> None:
        del row
        clusters[cells[cluster]] = None
        if cells[cluster] == options.cluster and cells[app] in _APPLICATIONS:
            whole(cells[place], "placement")
            point = (
                whole(cells[batch], "local_bsz"),
                number(cells[step], "step_time"),
                number(cells[sync], "sync_time"),
            )
            curves.setdefault((cells[app], cells[place]), []).append(point)

    out.read(table.rows(out), make)
    wrong = [
        Problem(row.sentence, "correct it", file="profiles", line=row.row, field=row.field)
        for row in out.dropped
    ]
    if not curves and not wrong:
        known = ", ".join(clusters)
        wrong = [Problem(f"nothing was measured on {options.cluster}", f"choose one of {known}")]
    if wrong:
        raise InputError(wrong)
    return {key: sorted(curve) for key, curve in curves.items()}
