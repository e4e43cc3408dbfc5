"""Sites as threads of this process, over real connections."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
import torch
from tests.unit.runtime.wan.two_sites import free_ports
from torch import Tensor, nn

from gridloom.base.errors import InputError
from gridloom.base.system import SystemClock
from gridloom.model.parallel import SiteSync
from gridloom.runtime.place import Place
from gridloom.runtime.run import Run, StopWish
from gridloom.runtime.updates import Sync, SyncOptions
from gridloom.runtime.wan.settings import TransportSettings

QUICK = TransportSettings(heartbeat_s=0.05, silence_s=15.0, connect_s=0.5, backoff_s_max=0.1)
WAIT_S = 60.0
SAMPLES = 12
BUCKET_BYTES = 700
"""Three of the four parameters, which are sent while the backward pass comes to the fourth."""


def batch(step: int, samples: range) -> tuple[Tensor, Tensor]:
    """Return the samples of a step that a site is to train on, of the 12 that all share."""
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randn(SAMPLES, 8, generator=generator)
    targets = torch.sin(inputs @ torch.linspace(-1, 1, 32).view(8, 4))
    return inputs[samples.start : samples.stop], targets[samples.start : samples.stop]


def model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4))


@dataclass
class Trained:
    """What came of a site."""

    weights: list[Tensor] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    rounds: list[tuple[str, ...]] = field(default_factory=list)
    present: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)


@dataclass
class Party:
    """Sites that train together, each in a thread.

    Attributes:
        names: The sites.
        how: Their method.
        steps: Training steps.
        before: Called by each site before a step, with its name and the step.
        shares: Samples of each site, by default equal ones.
    """

    names: Sequence[str]
    how: SiteSync
    steps: int
    ports: Sequence[int]
    before: Callable[[str, int], None] = lambda name, step: None
    shares: Sequence[range] = ()
    trained: dict[str, Trained] = field(default_factory=dict)
    errors: list[BaseException] = field(default_factory=list)

    def run(self) -> dict[str, Trained]:
        nets = [model() for _ in self.names]  # here: torch has one generator for all threads
        threads = [
            threading.Thread(target=self.guarded, args=(name, net))
            for name, net in zip(self.names, nets, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
            assert not thread.is_alive(), "a site hangs"
        if self.errors:
            raise self.errors[0]
        return self.trained

    def guarded(self, name: str, net: nn.Module) -> None:
        try:
            self.trained[name] = self.train(name, net)
        except BaseException as error:  # noqa: BLE001 - told by the test's own thread
            self.errors.append(error)

    def train(self, name: str, net: nn.Module) -> Trained:
        number, count = self.names.index(name), len(self.names)
        speakers = {n: ("127.0.0.1", p) for n, p in zip(self.names, self.ports, strict=True)}
        place = Place(
            job_id="job", site=name, sites=tuple(self.names), rank=0, size=1, local_rank=0,
            address="127.0.0.1", store=("", 0), speakers=speakers,
        )  # fmt: skip
        run = Run(place, SystemClock(), StopWish())
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
        options = SyncOptions(
            clip_norm=1.0, patience_s=20.0, bucket_bytes=BUCKET_BYTES, transport=QUICK
        )
        sync = Sync(run, net, optimizer, self.how, options)
        trained = Trained()
        share = SAMPLES // count
        samples = (
            self.shares[number] if self.shares else range(number * share, (number + 1) * share)
        )
        for step in range(self.steps):
            self.before(name, step)
            inputs, targets = batch(step, samples)
            loss = ((net(inputs) - targets) ** 2).mean()
            loss.backward()
            sync.step(tokens=len(samples))
            trained.losses.append(float(loss.detach()))
            trained.rounds += [one.sites for one in sync.rounds()]
            trained.present = trained.present or sync.present()
        trained.events += sync.events()
        sync.finish()
        trained.events += sync.events()
        trained.weights = [p.detach().clone() for p in net.parameters()]
        return trained


def alone(steps: int, every: int = 1) -> list[Tensor]:
    """Return the weights of one process that trains on all samples."""
    return train_alone(steps, every)[0]


def train_alone(steps: int, every: int = 1) -> tuple[list[Tensor], list[float]]:
    """Return the weights and the losses of one process that trains on all samples."""
    net = model()
    losses = []
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    for step in range(steps):
        inputs, targets = batch(step, range(SAMPLES))
        loss = ((net(inputs) - targets) ** 2).mean()
        (loss / every).backward()
        losses.append(float(loss.detach()))
        if (step + 1) % every == 0:
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    return [p.detach().clone() for p in net.parameters()], losses


def loss_of(weights: Sequence[Tensor]) -> float:
    """Return the loss of a model on samples that nobody trained on."""
    net = model()
    with torch.no_grad():
        for parameter, value in zip(net.parameters(), weights, strict=True):
            parameter.copy_(value)
        inputs, targets = batch(10_000, range(SAMPLES))
        return float(((net(inputs) - targets) ** 2).mean())


def apart(one: Sequence[Tensor], two: Sequence[Tensor]) -> float:
    return max(float((a - b).abs().max()) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize("count", [2, 3])
def test_every_step_is_the_training_of_one_process(count: int) -> None:
    names = ["a", "b", "c"][:count]
    trained = Party(names, SiteSync(), 30, free_ports(count)).run()
    weights, losses = train_alone(30)
    for name in names:
        assert apart(trained[name].weights, trained["a"].weights) == 0
        assert apart(trained[name].weights, weights) < 1e-5
    of_steps = zip(*(trained[name].losses for name in names), strict=True)
    together = [sum(of_sites) / count for of_sites in of_steps]
    assert max(abs(a - b) for a, b in zip(together, losses, strict=True)) < 1e-5


def test_uneven_shares_are_weighed_by_tokens() -> None:
    shares = [range(9), range(9, 12)]
    trained = Party(["a", "b"], SiteSync(), 12, free_ports(2), shares=shares).run()
    assert apart(trained["a"].weights, alone(12)) < 1e-5


def test_accumulated_gradients_are_those_of_a_larger_batch() -> None:
    how = SiteSync(kind="accumulated", every=3)
    trained = Party(["a", "b"], how, 12, free_ports(2)).run()
    assert apart(trained["a"].weights, trained["b"].weights) == 0
    assert apart(trained["a"].weights, alone(12, every=3)) < 1e-5


@pytest.mark.parametrize(
    "how",
    [
        SiteSync(codec="blocks", bits=8),
        SiteSync(codec="plain", bits=16),
        SiteSync(codec="top_k", share=0.2),
        SiteSync(codec="low_rank", rank=2),
    ],
    ids=lambda how: how.codec,
)
def test_compressed_gradients_train_as_well(how: SiteSync) -> None:
    trained = Party(["a", "b"], how, 60, free_ports(2)).run()
    assert apart(trained["a"].weights, trained["b"].weights) == 0
    assert loss_of(trained["a"].weights) < 1.2 * loss_of(alone(60))


@pytest.mark.parametrize("count", [2, 3])
def test_outer_rounds_end_in_one_model(count: int) -> None:
    names = ["a", "b", "c"][:count]
    how = SiteSync(
        kind="outer", every=8, codec="blocks", bits=4, fragments=4,
        outer_learning_rate=0.9, outer_momentum=0.3,
    )  # fmt: skip
    trained = Party(names, how, 60, free_ports(count)).run()
    for name in names:
        assert trained[name].present == names
        assert apart(trained[name].weights, trained["a"].weights) == 0
        assert trained[name].events[0].endswith("is in contact")
        assert not [one for one in trained[name].events if "a model of this site's own" in one]
    assert tuple(names) in trained["a"].rounds


def test_a_slower_site_makes_fewer_steps_and_stops_nobody() -> None:
    clock = SystemClock()

    def before(name: str, step: int) -> None:
        clock.sleep(0.03 if name == "b" else 0.005)

    how = SiteSync(kind="outer", every=16, fragments=4)
    party = Party(["a", "b"], how, 80, free_ports(2), before=before)
    trained = party.run()
    assert apart(trained["a"].weights, trained["b"].weights) == 0
    assert ("a", "b") in trained["a"].rounds


def on_one_site(how: SiteSync, options: SyncOptions) -> tuple[Sync, nn.Module]:
    """Return a site that trains alone, and its model, with the gradients of a batch."""
    place = Place(
        job_id="", site="a", sites=("a",), rank=0, size=1, local_rank=0, address="",
        store=("", 0), speakers={},
    )  # fmt: skip
    net = model()
    inputs, targets = batch(0, range(4))
    ((net(inputs) - targets) ** 2).mean().backward()
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    return Sync(Run(place, SystemClock(), StopWish()), net, optimizer, how, options), net


def test_a_library_makes_the_update_in_place_of_the_optimizer() -> None:
    sync, net = on_one_site(SiteSync(), SyncOptions())
    before = [p.detach().clone() for p in net.parameters()]
    updates: list[int] = []
    assert sync.step(update=lambda: updates.append(sync.steps))
    assert (updates, sync.steps) == ([0], 1)
    assert apart([p.detach() for p in net.parameters()], before) == 0
    assert all(p.grad is not None for p in net.parameters())
    assert sync.step()
    assert apart([p.detach() for p in net.parameters()], before) > 0


@pytest.mark.parametrize(
    ("how", "options", "problem"),
    [
        (SiteSync(kind="accumulated", every=2), SyncOptions(), "take kind outer"),
        (SiteSync(), SyncOptions(clip_norm=1.0), "have the library clip them"),
    ],
)
def test_what_would_come_too_late_for_a_library_is_refused(
    how: SiteSync, options: SyncOptions, problem: str
) -> None:
    sync, _ = on_one_site(how, options)
    with pytest.raises(InputError, match=problem):
        sync.step(update=lambda: None)
    assert sync.steps == 0
