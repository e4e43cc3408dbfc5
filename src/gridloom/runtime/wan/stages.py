"""One pipeline over several sites: each holds some of the layers, and its neighbours the next.

Activations go forward and gradients back over the links while the stages compute; as many
micro-batches are under way as cover the round trip. A step whose link fails for long is given up
at all stages and made again: no weights have moved (``stages_accord``).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from gridloom.base.codec import digest
from gridloom.base.errors import InputError, Problem
from gridloom.base.system import SystemIds
from gridloom.runtime.failure import PoisonedError
from gridloom.runtime.run import Run
from gridloom.runtime.wan.events import LinkFacts
from gridloom.runtime.wan.settings import Address, Endpoint, TransportSettings
from gridloom.runtime.wan.stages_accord import AFTER, BEFORE, Accord, Own
from gridloom.runtime.wan.stages_layers import Layer, built, check_untied
from gridloom.runtime.wan.stages_link import Alone, Neighbours, neighbours_of
from gridloom.runtime.wan.stages_messages import Agreed
from gridloom.runtime.wan.stages_ranks import StageRanks
from gridloom.runtime.wan.stages_schedule import Turn, Turns, depth_for, layers_of
from gridloom.runtime.wan.stages_talk import Talk
from gridloom.runtime.wan.stages_wire import Snapshot, Wire, squares_of
from gridloom.runtime.wan.stages_work import Batch, Loss, StageModule, Work
from gridloom.runtime.wan.transport import Transport


@dataclass(frozen=True, kw_only=True)
class StageOptions:
    """How a model is cut over sites, and what they send.

    Attributes:
        micro_batches: Equal parts of the batch of a step, that pass the stages one by one.
        stage_layers: Layers of each site, in the order of the job; empty for an even cut.
        in_flight: Micro-batches that a stage may hold at once, for the sake of memory; 0 for as
            many as cover the links.
        bits: Of a number on the way: 32, 16 or 8.
        clip_norm: Global norm, over all stages, to which gradients are clipped; 0 for any.
        stall_s: A link that fails for longer makes the stages give the step up.
        patience_s: How long nothing may come from a neighbour that is waited for, before this
            stage fails.
        seed: Of the chance by which gradients are rounded to 8 bits.
        transport: Streams, caps and certificates of the connections.
    """

    micro_batches: int = 8
    stage_layers: tuple[int, ...] = ()
    in_flight: int = 0
    bits: int = 32
    clip_norm: float = 0.0
    stall_s: float = 10.0
    patience_s: float = 300.0
    seed: int = 0
    transport: TransportSettings = field(default_factory=TransportSettings)


@dataclass(frozen=True)
class Passed:
    """How the passes of a step went; loss and norm are the same at all stages.

    Attributes:
        loss: Mean over the batch.
        norm: Of the gradients of all stages, before clipping.
        again: How often the step was begun again.
        depth: Micro-batches that this stage was allowed to hold.
        compute_s: Seconds in which this stage computed, compressing included.
        waited_s: Seconds in which it had nothing to do.
    """

    loss: float
    norm: float
    again: int
    depth: int
    compute_s: float
    waited_s: float


class Stages:
    """This site's stage, and its part in the passes of every step.

    Attributes:
        module: The layers of this stage, on its device; the optimizer is built over their
            parameters.
    """

    def __init__(
        self, run: Run, layers: Sequence[Layer], loss: Loss, options: StageOptions
    ) -> None:
        """Keep the layers of this site's stage; the neighbours are met before the first step.

        Args:
            run: This process's part of the training.
            layers: Of the whole model, in order: each takes what the one before gives. They, or
                functions that build them, of which each site calls its own alone.
            loss: Of a micro-batch.
            options: The rest.

        Raises:
            InputError: The layers cannot be cut so, or an option cannot be.
        """
        _check(options)
        place, count = run.place, len(run.place.sites)
        own = layers_of(place.number, count, len(layers), options.stage_layers)
        modules = built(layers, own)
        check_untied(modules, own)
        self.module = StageModule({n: modules[n] for n in own}).to(run.device)
        self._run, self._options, self._loss = run, options, loss
        self._wire = Wire(options.bits, options.seed, place.site, run.device)
        self._ranks = StageRanks(place)
        self._ranks.begin_alike(self.module)
        self._accord = Accord(
            first=place.number == 0,
            last=place.number == count - 1,
            settings=_digest(modules, options),
        )
        self._left = count - place.number
        patience = (options.stall_s, options.patience_s)
        neighbours, address = _neighbours(run, self._ranks, options)
        self._talk = Talk(self._accord, neighbours, run.clock, patience)
        self._talk.ranks = self._ranks.gathered(address)
        self._is_met = False
        self._delay_s = self._period_s = 0.0
        self._is_stopping = False

    @property
    def steps(self) -> int:
        """Training steps so far."""
        return self._accord.trained

    def forward_backward(self, inputs: Tensor, targets: Tensor) -> Passed:
        """Take a batch through all stages and back; all sites call it with the same batch.

        Of a site's ranks each calls it with a share of its own, of equal size, and so does the
        rank of the same number at the other sites.

        Afterwards the gradients of this stage are those of the mean loss over the batch, clipped
        by the norm over all stages: an optimizer may make its update. Those that were there
        before are gone.

        Args:
            inputs: Of the first layer, ``[samples, ...]``.
            targets: Of the loss, ``[samples, ...]``.

        Raises:
            InputError: The batch cannot be cut, or another site has read another one or trains
                something else.
            PeerLostError: A neighbour was lost, for longer than the patience.
            PoisonedError: The loss or the gradients are not finite, at any stage.
        """
        waited_s = self._talk.waited_s
        with self._telling():
            work = self._passed(Batch(inputs, targets, self._options.micro_batches))
            again = self._accord.stamp[1]
            outcome = self._agreed(trains=self._ranks.count == 1)
            if self._ranks.count > 1:
                outcome = self._averaged(outcome)
            self._finish_gradients(outcome)
        return Passed(
            loss=outcome.loss,
            norm=outcome.norm,
            again=again,
            depth=work.turns.depth,
            compute_s=work.compute_s,
            waited_s=self._talk.waited_s - waited_s,
        )

    def evaluate(self, inputs: Tensor, targets: Tensor) -> float:
        """Take a batch through all stages, and not back; all sites call it with the same batch.

        Nothing is kept of it: gradients stay as they are, and no step is counted. Layers that
        behave otherwise while they train want ``module.eval()`` before it.

        Args:
            inputs: As of ``forward_backward``; a site's ranks each give a share.
            targets: As of ``forward_backward``.

        Returns:
            The mean loss over the batch of all ranks, the same at all stages.

        Raises:
            InputError: As ``forward_backward``, or another site trains in the same step.
            PeerLostError: As ``forward_backward``.
            PoisonedError: A number that is to be sent is not finite.
        """
        with self._telling(), torch.no_grad():
            self._passed(Batch(inputs, targets, self._options.micro_batches, trains=False))
            return self._ranks.average([], self._agreed(trains=False).loss)

    def should_stop(self) -> bool:
        """Return whether any site was asked to save and end; all get the same answer.

        It is as of the last step, with which the wish has travelled.
        """
        return self._is_stopping

    def finish(self) -> None:
        """Part from the neighbours after the last step, once they know how it ended.

        They wait for a stage that leaves earlier no longer: they fail.
        """
        self._talk.part(self._options.patience_s)

    def links(self) -> Mapping[str, LinkFacts]:
        """Return what is known of the links to the neighbours."""
        return self._talk.neighbours.links()

    def state_dict(self) -> dict[str, Any]:
        """Return the number of steps so far, which all stages compare before they go on."""
        return {"steps": self._accord.trained}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there; before the first step."""
        self._accord.go_on_from(int(state["steps"]))

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Tell the neighbours if this stage gives up for good."""
        try:
            yield
        except BaseException as error:
            self._talk.give_in(error)
            raise

    def _passed(self, batch: Batch) -> Work:
        """Make the passes of a step, again and again until all stages agree."""
        snapshot = Snapshot(self.module, self._run.device)
        while (work := self._try(batch)) is None:
            snapshot.restore()
        return work

    def _try(self, batch: Batch) -> Work | None:
        """Make the passes of a step until all stages agree; nothing if they were given up."""
        talk, accord, stamp = self._talk, self._accord, self._begin()
        if batch.trains:
            self.module.zero_grad(set_to_none=True)
        work = Work(self.module, self._loss, batch, self._wire, self._turns(trains=batch.trains))
        is_told = False
        while accord.stamp == stamp and accord.outcome is None:
            for one in talk.values(stamp):
                work.arrived(one.values, one.body, one.peer)
            turn = work.turns.take()
            if turn is not None:
                self._do(turn, work)
                talk.look()
            elif work.turns.is_over and not is_told:
                is_told = True
                accord.complete(self._own(work, trains=batch.trains))
            else:
                talk.wait()
        talk.is_trying = False
        if accord.stamp == stamp:
            return work
        talk.neighbours.forget_values()
        return None

    def _begin(self) -> tuple[int, int]:
        """Meet the neighbours, and begin the step as often as has been agreed."""
        if not self._is_met:
            self._meet()
        self._talk.await_neighbours()
        self._talk.is_trying = True
        return self._accord.stamp

    def _meet(self) -> None:
        """Let the first rank meet the other sites', and the others hear where theirs are."""
        if self._run.place.is_first:
            self._talk.await_neighbours()
        for side, address in self._ranks.told(self._talk.told).items():
            if not self._run.place.is_first:
                self._talk.neighbours.meet(side, address)
        self._is_met = True

    def _turns(self, *, trains: bool) -> Turns:
        """Return the turns of a step, with a depth that follows from the last one."""
        count, behind = self._options.micro_batches, self._accord.behind
        period_s = max(self._period_s, behind.period_s if behind else 0.0)
        delay_s = self._delay_s + (behind.delay_s if behind else 0.0)
        depth = depth_for(self._left, delay_s, period_s) if period_s > 0 else self._left
        depth = min(depth, count, self._options.in_flight or count)
        sides = self._accord.sides
        first, last = BEFORE not in sides, AFTER not in sides
        return Turns(count, depth, first=first, last=last, trains=trains)

    def _do(self, turn: Turn, work: Work) -> None:
        started_s = self._run.clock.monotonic_s()
        sent = work.do(turn, self._accord.stamp, self._accord.sides)
        work.compute_s += self._run.clock.monotonic_s() - started_s
        if sent is not None:
            self._talk.neighbours.send(*sent)

    def _own(self, work: Work, *, trains: bool) -> Own:
        """Return what this stage has to say once all its passes are made."""
        if trains:
            self._delay_s, transfer_s = self._talk.neighbours.delay_s(work.payload_bytes)
            self._period_s = max(work.compute_s / self._options.micro_batches, transfer_s)
        return self._said(float(work.loss), is_final=trains and self._ranks.count == 1)

    def _said(self, loss: float, *, is_final: bool) -> Own:
        """Return what is to be agreed on; whether to stop is asked of all ranks of the site."""
        return Own(
            loss=loss,
            squares=squares_of(self._gradients()) if is_final else 0.0,
            stop=self._run.should_stop() if is_final else False,
            delay_s=self._delay_s,
            period_s=self._period_s,
        )

    def _agreed(self, *, trains: bool) -> Agreed:
        """Go on after what all stages have agreed on; with ``trains``, weights move now."""
        outcome = self._accord.outcome
        assert outcome is not None
        self._accord.commit(trains=trains)
        self._talk.say()
        self._talk.neighbours.settle()
        return outcome

    def _averaged(self, passed: Agreed) -> Agreed:
        """Average with the ranks of the site, once none can give its passes up; agree again."""
        loss = self._ranks.average(list(self.module.parameters()), passed.loss)
        self._accord.complete(self._said(loss, is_final=True))
        while self._accord.outcome is None:
            self._talk.wait()
        return self._agreed(trains=True)

    def _finish_gradients(self, outcome: Agreed) -> None:
        """Clip, as all stages do."""
        self._is_stopping = outcome.stop
        if not (math.isfinite(outcome.loss) and math.isfinite(outcome.norm)):
            text = f"the loss of step {self.steps} is {outcome.loss:g} and the norm of its"
            remedy = "lower the learning rate or clip_norm, and go on from a checkpoint"
            raise PoisonedError(f"{text} gradient {outcome.norm:g}", remedy)
        if 0 < self._options.clip_norm < outcome.norm:
            factor = self._options.clip_norm / (outcome.norm + 1e-6)
            for gradient in self._gradients():
                gradient.mul_(factor)

    def _gradients(self) -> list[Tensor]:
        return [p.grad for p in self.module.parameters() if p.grad is not None]


def _check(options: StageOptions) -> None:
    """Raise ``InputError`` naming all that cannot be."""
    problems = []
    ranges = (("micro_batches", 1), ("in_flight", 0), ("clip_norm", 0), ("patience_s", 0))
    for name, least in (*ranges, ("stall_s", 0)):
        value = getattr(options, name)
        if not least <= value < math.inf:
            text = f"is {value:g}, must be at least {least}"
            problems.append(Problem(text, field=f"pipeline.{name}"))
    if problems:
        raise InputError(problems)


def _digest(layers: Sequence[nn.Module], options: StageOptions) -> str:
    """Return what the stages compare before they train together."""
    names = [
        (number, name, tuple(parameter.shape))
        for number, layer in enumerate(layers)
        for name, parameter in layer.named_parameters()
    ]
    alike = (options.micro_batches, options.stage_layers, options.bits, options.clip_norm)
    return digest((alike, names))


def _neighbours(
    run: Run, ranks: StageRanks, options: StageOptions
) -> tuple[Neighbours, Address | None]:
    """Start the connections of this stage to those beside it; return where it listens, too."""
    place = run.place
    sides = neighbours_of(place.sites, place.site)
    if not sides:
        return Neighbours({}, Alone(), run.clock), None
    listen = place.speakers[place.site] if place.is_first else (place.address, 0)
    names = {side: ranks.name(site) for side, site in sides.items()}
    transport = Transport(
        Endpoint(name=ranks.name(place.site), listen=listen, token=place.job_id),
        {
            names[side]: place.speakers[site] if place.is_first else None
            for side, site in sides.items()
        },
        settings=options.transport,
        clock=run.clock,
        ids=SystemIds(),
    )
    transport.start()
    return Neighbours(names, transport, run.clock), transport.address
