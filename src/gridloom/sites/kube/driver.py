"""The driver of sites under Kubernetes whose pods see the run directories as we do."""

import contextlib
from collections.abc import Callable, Container, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path

from msgspec.structs import replace

from gridloom.base.clock import Clock
from gridloom.base.errors import InputError, SiteError
from gridloom.base.files import replace_file
from gridloom.model.event import AnyEvent, NodeMarked, TaskRefused, TaskRunning
from gridloom.model.inventory import Site
from gridloom.model.life import Outcome
from gridloom.model.reason import Reason, Why
from gridloom.sites.kube import hands, tell
from gridloom.sites.kube.api import Api, Place
from gridloom.sites.kube.cluster import Cluster, Outside, Todo
from gridloom.sites.kube.endings import Ending, first_cause
from gridloom.sites.kube.gang import FORMS, Handed, gang, submission
from gridloom.sites.kube.parse_pods import Phase
from gridloom.sites.kube.render import Form, manifests
from gridloom.sites.kube.standing import NodeWatch
from gridloom.sites.kube.state import KubeGang
from gridloom.sites.reports import ended
from gridloom.sites.tasks import Heard, TaskFiles, plane_of, unwritable, with_given_devices
from gridloom.wire.agent import Rendezvous, TaskOrder, TaskRef, gang_directory, who

_WORDLESS_S = 10.0
"""How long a cluster may take to say why a pod has ended, or, beyond its grace, was asked to."""
_SETTLE_S = 0.5
"""How long after its pod's end what a supervisor said last may take to be seen here."""
_KILL_MARGIN_S = 15.0
"""How long after a stop's grace a supervisor that does not end is taken out of the cluster."""
_SILENT_S = 5.0
"""How often it is asked what hinders a job or a pod that should go on."""
_LOG_FILE = "supervisor.log"

_Key = tuple[Place, Form, bool]


class KubeDriver:
    """Runs tasks as jobs of Kubernetes (plays `gridloom.ports.driver.Driver`)."""

    chooses_nodes = True

    def __init__(
        self, runs: Path, clock: Clock, connect: Callable[[Place], Api], executor: Executor
    ) -> None:
        """Drive the tasks of the runs in ``runs``, which the sites' pods must see, too.

        Args:
            runs: Directory of all run directories.
            clock: Where the time comes from.
            connect: Makes the client of a cluster, when it is needed first.
            executor: Where requests and watches last: meanwhile the leases of all other tasks must
                be renewed.
        """
        self._files = TaskFiles(runs)
        self._plane = plane_of(self._files.runs)
        self._clock = clock
        self._outside = Outside(clock=clock, connect=connect, executor=executor)
        self._nodes = NodeWatch(self._outside)
        self._gangs: dict[Path, KubeGang] = {}
        self._clusters: dict[_Key, Cluster] = {}

    def submit(self, site: Site, orders: Sequence[TaskOrder]) -> Mapping[TaskRef, Reason]:
        """Write down what is to be handed in as one job, and begin to hand it in."""
        reason = None
        try:
            one = self._gang(orders[0].task)
            if one.handed is None:
                self._write(one, site, orders)
            self._act(self._gangs.keys())
        except InputError as error:
            reason = hands.refusal(SiteError(str(error)))
        except OSError as error:
            reason = unwritable(error)
        return {order.task: reason for order in orders} if reason is not None else {}

    def meet(self, task: TaskRef, rendezvous: Rendezvous) -> None:
        """Write where the tasks are."""
        self._files.meet(task, rendezvous)

    def renew(self, task: TaskRef, until_s: float) -> None:
        """Write the lease anew."""
        self._files.renew(task, until_s)

    def stop(self, task: TaskRef, grace_s: float, sentence: str) -> None:
        """Write the order to stop; what does not obey is taken out of the cluster."""
        self._files.stop(task, grace_s, sentence)
        self._stopped(self._gang(task), grace_s)

    def observe(self, tasks: Sequence[TaskRef]) -> list[AnyEvent]:
        """Return what the supervisors reported, and what the cluster says of those that do not."""
        groups: dict[Path, list[TaskRef]] = {}
        for task in tasks:
            groups.setdefault(Path(gang_directory(self._files.runs, task)), []).append(task)
        facts: list[AnyEvent] = []
        for members in groups.values():
            one = self._gang(members[0])
            self._look(one)
            for task in members:
                with contextlib.suppress(OSError):  # of what we cannot see now we do not speak now
                    facts.extend(self._observe(task, one))
        self._act(groups)
        self._files.forget_all_but(tasks)
        return facts

    def standing(self, site: Site) -> Sequence[NodeMarked] | None:
        """Return which nodes the cluster keeps from work."""
        return self._nodes.standing(site)

    def free_port(
        self, address: str, ports: tuple[int, int], taken: frozenset[int], count: int = 1
    ) -> int:
        """Raise ``SiteError``: which ports are free is told by those who have come up."""
        raise SiteError(f"which ports of {address} are free is not known before a task is there")

    # ----- what is handed in

    def _write(self, one: KubeGang, site: Site, orders: Sequence[TaskOrder]) -> None:
        access, runs = site.kubernetes, self._files.runs
        if access is None:
            raise InputError(f"site {site.name} does not say how jobs are handed in")
        asked = submission(orders, runs, access)
        objects = manifests(asked, FORMS[access.workload])
        for order in orders:
            self._files.order(with_given_devices(order))
        one.write(
            gang(orders, runs, access),
            objects,
            Handed(access=access, name=asked.name, grace_s=asked.grace_s),
        )
        one.reload()

    def _gang(self, task: TaskRef) -> KubeGang:
        """Return what is known of a gang; after a restart that is what was written down."""
        directory = Path(gang_directory(self._files.runs, task))
        one = self._gangs.get(directory)
        if one is None or one.handed is None:
            one = self._gangs[directory] = KubeGang(directory)
        return one

    def _stopped(self, one: KubeGang, grace_s: float) -> None:
        kill_s = self._clock.monotonic_s() + grace_s + _KILL_MARGIN_S
        one.stopped, one.kill_s = True, min(kill_s, one.kill_s or kill_s)

    # ----- what is seen

    def _cluster(self, one: KubeGang) -> Cluster:
        assert one.handed is not None
        access = one.handed.access
        key = (Place.of(access), FORMS[access.workload], bool(access.queue))
        if key not in self._clusters:
            self._clusters[key] = Cluster(
                key[0], key[1], queued=key[2], plane=self._plane, outside=self._outside
            )
        return self._clusters[key]

    def _look(self, one: KubeGang) -> None:
        """Take in what the watches have brought; nothing here waits."""
        if one.handed is None or one.placed is None:
            return
        copies = self._cluster(one).copies(one.seen.name, one.placed.uid)
        if copies is None:
            return
        run, pods, workload = copies
        one.is_looked = True
        one.seen = replace(one.seen, is_gone=one.is_gone, run=run, pods=pods, workload=workload)
        one.has_run = one.has_run or any(pod.phase is Phase.RUNNING for pod in pods)
        one.taken |= {pod.index: pod.taken for pod in pods if pod.taken is not None}
        if one.has_run and one.seen.eviction is None:
            one.seen = replace(one.seen, eviction=tell.evicted(one.seen.workload))

    def _observe(self, task: TaskRef, one: KubeGang) -> list[AnyEvent]:
        index = one.indexes.get(self._files.place(task), 0)
        heard = one.heard[index] = self._files.heard(task)
        facts = heard.news(task, self._clock.monotonic_s())
        one.has_run = one.has_run or heard.has_spoken
        stop = self._files.stop_of(task)
        if stop is not None and not one.stopped:  # before we were started
            self._stopped(one, stop.grace_s)
        asked = stop.sentence if stop is not None else "stopped" * one.stopped
        if heard.end is not None:
            return [*facts, *self._end(task, heard, one, index, asked=bool(stop))]
        if one.refusal is not None:
            return [TaskRefused(**who(task), reason=one.refusal)]
        if one.handed is None:
            return facts
        if one.stopped and not one.may_be_placed and self._cluster(one).is_free:
            sentence = f"{asked}: Kubernetes had not taken it yet"
            heard.end = Outcome(
                code=Why.STOP_REQUESTED, sentence=sentence, ended_s=self._clock.now_s()
            )
            return [*facts, ended(task, heard.end)]
        end = self._ending(one, index)
        if end is not None:
            heard.end = self._found(task, one, index, asked, end)
            return [*facts, ended(task, heard.end)]
        if heard.has_spoken and index in one.over_s:  # its lease must last until its end is known
            return [*facts, TaskRunning(**who(task))]
        if not heard.has_spoken:
            trouble = self._cluster(one).trouble()
            seen = replace(one.seen, warning=one.warning, trouble=trouble)
            return [*facts, tell.wait_of(seen, index, who(task))]
        return facts

    def _ending(self, one: KubeGang, index: int) -> Ending | None:
        """Return how a task has ended that never says so, once all that may be said was."""
        whole, pod = tell.ending(one.seen), one.seen.pod(index)
        own = pod.ending if pod is not None and pod.phase is Phase.ENDED else None
        if whole is None and own is None:
            return None
        over_s = self._clock.monotonic_s() - one.over_s.setdefault(index, self._clock.monotonic_s())
        if over_s >= _WORDLESS_S:
            return whole or own
        waits_for_log = pod is not None and index not in one.logs
        return None if over_s < _SETTLE_S or waits_for_log else whole

    def _end(
        self, task: TaskRef, heard: Heard, one: KubeGang, index: int, *, asked: bool
    ) -> list[AnyEvent]:
        """Return how a task ended: if its site asked it to stop, once the site has said why."""
        assert heard.end is not None
        if heard.end.code is Why.STOP_REQUESTED and not asked and not heard.is_explained:
            told = tell.why_asked(heard.end, one.seen, first_cause([*one.taken.values()]))
            waited_s = self._clock.monotonic_s() - heard.end_seen_s
            # Others may use their grace to the end, and the cluster says why once all are gone
            grace_s = one.handed.grace_s if one.handed is not None else 0.0
            if told is None and waited_s < grace_s + _WORDLESS_S:
                return [TaskRunning(**who(task))]
            heard.end = told or heard.end
        heard.is_explained = True
        return [ended(task, heard.end)]

    def _found(self, task: TaskRef, one: KubeGang, index: int, asked: str, end: Ending) -> Outcome:
        """Return how a task ended that never said so; keep what its pod has printed last."""
        log, path = one.logs.get(index, ""), self._files.place(task) / _LOG_FILE
        printed = next((line.strip() for line in reversed(log.splitlines()) if line.strip()), "")
        outcome = tell.outcome_of(
            one.seen, end, who(task), asked=asked, printed=printed, now_s=self._clock.now_s()
        )
        if outcome.code is not Why.SUPERVISOR_LOST:
            return outcome
        with contextlib.suppress(OSError):
            replace_file(path, log.encode())
        return replace(outcome, remedy=f"see {path}")

    # ----- what is done

    def _act(self, live: Container[Path]) -> None:
        """Have done at each cluster what is to be done there, and never wait for it."""
        work: dict[Cluster, list[tuple[KubeGang, Todo]]] = {}
        for directory, one in list(self._gangs.items()):
            if directory not in live:
                self._look(one)
                self._forsaken(one)
            todo = self._todo(one) if one.handed is not None else Todo()
            if todo == Todo() and directory not in live and not self._is_owed(one):
                del self._gangs[directory]
            elif one.handed is not None and one.refusal is None:
                todos = work.setdefault(self._cluster(one), [])
                todos += [] if todo == Todo() else [(one, todo)]
        for cluster, todos in work.items():
            cluster.have_done(todos)

    def _forsaken(self, one: KubeGang) -> None:
        """Stop a gang that was asked after, and is not any more before it has ended.

        It was taken for dead, perhaps while it waited: then nothing of it is to stay at the
        cluster. What runs ends by its lease.
        """
        if any(heard.end is None for heard in one.heard.values()):
            one.stopped = True

    def _is_owed(self, one: KubeGang) -> bool:
        """Return whether a gang that nobody asks after may still have to be taken out."""
        if one.placed is None or one.is_gone or one.is_deleted:
            return False
        return one.stopped and tell.ending(one.seen) is None

    def _todo(self, one: KubeGang) -> Todo:
        if one.placed is None:
            wanted = one.refusal is None and (not one.stopped or one.may_be_placed)
            return Todo(hands_in=wanted)
        if one.is_gone:
            return Todo()
        waits = [
            index
            for index in one.over_s
            if index not in one.logs and one.seen.pod(index) is not None
        ]
        return Todo(
            confirms=one.is_looked and one.seen.run is None,
            deletes=not one.is_deleted and self._is_to_go(one),
            logs=tuple(waits),
            warns_of=self._silent(one),
        )

    def _silent(self, one: KubeGang) -> str:
        """Return about what warnings are to be fetched: of what nothing is said for a while."""
        about, now_s = tell.silent(one.seen), self._clock.monotonic_s()
        if about != one.silent[0]:
            one.silent, one.warning = (about, now_s), ""
        if not about or now_s - one.silent[1] < _SILENT_S:
            return ""
        one.silent = (about, now_s)
        return about

    def _is_to_go(self, one: KubeGang) -> bool:
        """Return whether a gang is to be taken out of its cluster before it ends by itself."""
        all_heard = one.heard.values()
        is_over = all(heard.end is not None for heard in all_heard)
        if one.seen.eviction is not None:  # else Kueue would start it again
            return is_over or not one.seen.is_alive
        whole = tell.ending(one.seen)
        if whole is not None:
            is_kept = one.seen.run is not None and one.seen.run.ending is not None
            if is_kept and self._cluster(one).form is Form.TRAIN_JOB:
                return is_over  # its runtime goes with it, and its pods, which say how it ended
            return not is_kept
        if not one.stopped:
            return False
        if one.kill_s is not None and self._clock.monotonic_s() >= one.kill_s:
            return True
        speak = any(heard.has_spoken and heard.end is None for heard in all_heard)
        return not speak and not all(heard.has_spoken for heard in all_heard)
