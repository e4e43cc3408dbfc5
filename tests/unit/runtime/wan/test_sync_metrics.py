"""What updates take and what travels behind them: two sites as threads, over a link with a cap."""

import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from tests.unit.runtime.wan.test_syncs import WAIT_S
from tests.unit.runtime.wan.two_sites import free_ports
from torch import nn

from gridloom.base.codec import decode
from gridloom.base.system import SystemClock
from gridloom.control.metrics import decode_metric
from gridloom.control.time_spent import time_by_site
from gridloom.model.parallel import SiteSync
from gridloom.runtime.library.rows import LoopMetrics, Rows
from gridloom.runtime.place import Place
from gridloom.runtime.records import LinkBytes, metrics_file
from gridloom.runtime.run import Run, StopWish
from gridloom.runtime.sync_metrics import SyncMetrics
from gridloom.runtime.updates import Sync, SyncOptions
from gridloom.runtime.wan.settings import TransportSettings

SITES = ("north", "south")
SIDE = 512
PAYLOAD_BYTES = 4 * SIDE * SIDE
CAP_BYTES_PER_S = 4e6
CAPPED = TransportSettings(
    heartbeat_s=0.05, silence_s=15.0, connect_s=0.5, backoff_s_max=0.1,
    chunk_bytes=16 * 1024, cap_bytes_per_s=CAP_BYTES_PER_S,
)  # fmt: skip
LEAST_S = PAYLOAD_BYTES / CAP_BYTES_PER_S - 0.11
"""Of a payload on its way: what an idle link lets out at once is spared, and no more."""

STEPS = 4


@dataclass
class Seen:
    """What one site measured: of each step, of its end, and by its connections."""

    steps: list[SyncMetrics] = field(default_factory=list)
    end: SyncMetrics | None = None
    met_s: float = 0.0
    travelled_s: float = 0.0
    waited_s: float = 0.0
    traffic_bytes: int = 0
    rows: list[LoopMetrics] = field(default_factory=list)


def train(name: str, how: SiteSync, speakers: dict[str, tuple[str, int]], place: Path) -> Seen:
    where = Place(
        job_id="job", site=name, sites=SITES, rank=0, size=1, local_rank=0, address="127.0.0.1",
        store=("", 0), speakers=speakers, run_dir=str(place), attempt=3,
    )  # fmt: skip
    clock = SystemClock()
    run = Run(where, clock, StopWish())
    net = nn.Linear(SIDE, SIDE, bias=False)
    # Of its own: threads share the generator, and sites that begin apart wait for a state
    chance = torch.Generator().manual_seed(1)
    nn.init.uniform_(net.weight, -0.05, 0.05, generator=chance)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    sync = Sync(run, net, optimizer, how, SyncOptions(patience_s=20.0, transport=CAPPED))
    rows, seen, peers = Rows(run, sync), Seen(), sync.meter.peers
    assert peers is not None
    sync.meet()
    seen.met_s = peers.exposed_s()
    for step in range(STEPS):
        torch.autograd.backward(net(torch.ones(1, SIDE) * (step + 1)).square().mean())
        clock.sleep(0.1)  # the model is small, and travel is to be behind something
        sync.step()
        rows.write(step + 1, 0.5, None)
        seen.steps.append(sync.metrics())
    sync.finish()
    seen.end = sync.metrics()
    seen.travelled_s, seen.waited_s = peers.hidden_s() + peers.exposed_s(), peers.exposed_s()
    seen.traffic_bytes = sync.traffic_bytes
    file = place / metrics_file(name, SITES.index(name))
    seen.rows = [decode(line, LoopMetrics) for line in file.read_bytes().splitlines()]
    return seen


def party(how: SiteSync, found: list[int], place: Path) -> dict[str, Seen]:
    """Return what both sites measured."""
    speakers = {name: ("127.0.0.1", port) for name, port in zip(SITES, found, strict=True)}
    seen: dict[str, Seen] = {}

    def guarded(name: str) -> None:
        seen[name] = train(name, how, speakers, place)

    threads = [threading.Thread(target=guarded, args=(name,)) for name in SITES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert sorted(seen) == list(SITES)
    return seen


@pytest.mark.parametrize(
    "how",
    [SiteSync(), SiteSync(kind="outer", every=1, outer_learning_rate=1.0, outer_momentum=0.0)],
    ids=lambda how: str(how.kind),
)
def test_what_travels_is_behind_the_training_or_waited_for(
    how: SiteSync,
    tmp_path: Path,
) -> None:
    seen = party(how, free_ports(2), tmp_path)
    for name, one in seen.items():
        assert one.end is not None
        whole = [*one.steps, one.end]
        hidden_s = sum(part.between_site_hidden_s for part in whole)
        exposed_s = sum(part.between_site_s for part in whole)
        assert min(part.between_site_hidden_s for part in whole) >= 0
        # all that the connections saw is in one of the two, and rounds bound it from below
        assert hidden_s + one.waited_s == pytest.approx(one.travelled_s)
        assert one.travelled_s >= LEAST_S * sum(part.rounds for part in whole) / 2
        if how.kind == "outer":  # no step waits, but for the last rounds
            assert hidden_s >= LEAST_S
        else:  # with one bucket all travels after the backward pass
            assert all(part.between_site_s >= LEAST_S for part in one.steps)
            assert exposed_s >= one.waited_s - one.met_s
        assert all(part.optimizer_s > 0 for part in one.steps)
        (other,) = set(SITES) - {name}
        assert [list(part.links) for part in whole] == [[other]] * len(whole)
        bytes_ = sum(part.links[other].sent + part.links[other].received for part in whole)
        assert bytes_ == one.traffic_bytes > 2 * PAYLOAD_BYTES


def test_a_loop_of_ones_own_leaves_rows_for_the_report(
    tmp_path: Path,
) -> None:
    how = SiteSync(kind="outer", every=1, outer_learning_rate=1.0, outer_momentum=0.0)
    seen = party(how, free_ports(2), tmp_path)
    for name, one in seen.items():
        assert [row.step for row in one.rows] == list(range(1, STEPS + 1))
        assert {(row.attempt, row.site, row.loss) for row in one.rows} == {(3, name, 0.5)}
        assert (one.rows[0].step_s, one.rows[0].other_s) == (None, None)
        for row, step in zip(one.rows[1:], one.steps[1:], strict=True):
            assert row.step_s is not None
            assert row.other_s is not None
            parts_s = row.optimizer_s + row.within_site_s + row.between_site_s
            assert row.step_s == pytest.approx(parts_s + row.other_s)
            assert row.other_s >= 0.1
            assert row.optimizer_s == step.optimizer_s
        assert {one.sites for row in one.rows for one in row.rounds} <= {SITES, (name,)}
    lines = [
        [decode_metric(line) for line in (tmp_path / file).read_bytes().splitlines()]
        for file in ("metrics.jsonl", "metrics-south.jsonl")
    ]
    north, south = ([line for line in rows if line is not None] for rows in lines)
    assert len(north) == len(south) == STEPS
    spent = time_by_site(north, {"south": south})
    assert list(spent) == list(SITES)
    for parts in spent.values():
        assert parts["steps"] == STEPS - 1
        assert parts["compute_s"] is None
        assert parts["other_s"] is not None
        assert parts["other_s"] >= 0.1


def test_what_cannot_be_told_stays_so_and_new_links_count_from_nothing() -> None:
    link = LinkBytes(sent=5, received=7)
    before = SyncMetrics(1.0, 2.0, None, 3.0, 4.0, 5, {})
    now = SyncMetrics(1.5, 2.5, 1.0, 3.5, 4.5, 7, {"south": link})
    assert now.since(before) == SyncMetrics(0.5, 0.5, None, 0.5, 0.5, 2, {"south": link})
    assert now.since(now).links == {"south": LinkBytes(sent=0, received=0)}
