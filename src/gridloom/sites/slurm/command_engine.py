"""A Slurm asked by its commands, which run here or at a login host."""

from collections.abc import Collection, Mapping

from msgspec.structs import replace

from gridloom.sites.slurm import command, parse_queue, parse_scontrol, usage
from gridloom.sites.slurm.client import SlurmClient
from gridloom.sites.slurm.once import once
from gridloom.sites.slurm.records import Job, Licence, Node, Partition, Reservation
from gridloom.sites.slurm.states import job_end
from gridloom.sites.slurm.submission import Submission
from gridloom.sites.slurm.usage import Used


class CommandEngine:
    """Plays `gridloom.sites.slurm.engine.SlurmEngine` by sbatch, squeue, scancel and scontrol."""

    def __init__(
        self, client: SlurmClient, environment: Mapping[str, str], *, is_far: bool = False
    ) -> None:
        """Ask the Slurm that the commands find.

        Args:
            client: Runs commands.
            environment: Their variables beside those of this process, as ``SLURM_CONF``.
            is_far: An answer may get lost on its way here.
        """
        self._is_far = is_far
        self._client = client
        self._environment = dict(environment)
        self._preempted_s: dict[int, float] = {}

    def hand_in(self, asked: Submission, script: str) -> int:
        """Run sbatch, which reads from the script's ``#SBATCH`` lines what is asked for."""
        argv = once(command.sbatch(), asked.directory) if self._is_far else command.sbatch()
        return command.submitted(self._run(argv, script))

    def jobs(self, slurm_ids: Collection[int] = ()) -> tuple[Job, ...]:
        """Run squeue; once more when some have ended of which it is not known if by preemption."""
        told = parse_queue.squeue(self._run(command.squeue(slurm_ids)))
        if not slurm_ids:
            return told
        over = {job.job_id for job in told if job_end(job) is not None}
        known = {one: when for one, when in self._preempted_s.items() if one in over}
        if new := sorted(over - known.keys()):
            said = parse_queue.preemptions(self._run(command.preemptions(new)))
            known |= {one: said.get(one, 0.0) for one in new}
        self._preempted_s = known
        return tuple(replace(job, preempted_s=known.get(job.job_id)) for job in told)

    def cancel(self, slurm_id: int) -> None:
        """Run scancel."""
        self._run(command.scancel(slurm_id, only_waiting=True))

    def accounted(self, slurm_ids: Collection[int]) -> Mapping[int, Used]:
        """Run sacct."""
        return usage.sacct(self._run(command.usage(slurm_ids)))

    def nodes(self) -> tuple[Node, ...]:
        """Run scontrol."""
        return parse_scontrol.nodes(self._run(command.show("node")))

    def partitions(self) -> tuple[Partition, ...]:
        """Run scontrol."""
        return parse_scontrol.partitions(self._run(command.show("partition")))

    def reservations(self) -> tuple[Reservation, ...]:
        """Run scontrol."""
        return parse_scontrol.reservations(self._run(command.show("reservation")))

    def licences(self) -> tuple[Licence, ...]:
        """Run scontrol."""
        return parse_scontrol.licences(self._run(command.show("lic")))

    def _run(self, argv: tuple[str, ...], stdin: str = "") -> str:
        return self._client.run(argv, self._environment, stdin)
