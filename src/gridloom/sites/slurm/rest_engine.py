"""A Slurm asked through its slurmrestd, from 20.11 (v0.0.36) on."""

import errno
from collections.abc import Callable, Collection, Mapping
from http import HTTPStatus
from typing import Any, TypeVar

from gridloom.base.errors import SiteError
from gridloom.sites.slurm import parse_json, usage
from gridloom.sites.slurm.answer import SlurmError, answer
from gridloom.sites.slurm.engine import is_away
from gridloom.sites.slurm.records import Job, Licence, Node, Partition, Reservation
from gridloom.sites.slurm.rest import VERSIONS, submit_body
from gridloom.sites.slurm.rest_client import Answer, RestClient
from gridloom.sites.slurm.states import JobPhase, job_phase
from gridloom.sites.slurm.submission import Submission
from gridloom.sites.slurm.usage import Used

T = TypeVar("T")

_UNKNOWN_JOB = 2017
_NOT_AUTHENTIC = 1007
_AWAY_CODES = frozenset(
    {-1, *range(1000, 1005), *range(1800, 1810), *range(5000, 5010)}
    | {errno.EAGAIN, errno.EPIPE, errno.ENETUNREACH, errno.ECONNRESET, errno.ENOTCONN}
    | {errno.ETIMEDOUT, errno.ECONNREFUSED, errno.EHOSTUNREACH}
)
"""Of not reaching the controller; -1 is told by 22.05 where it does not know why it did not."""


class RestEngine:
    """Plays `gridloom.sites.slurm.engine.SlurmEngine` over HTTP."""

    def __init__(self, client: RestClient) -> None:
        """Ask through ``client``; nothing is asked yet."""
        self._client = client
        self._version = ""

    def hand_in(self, asked: Submission, script: str) -> int:
        """Post the job, all of which stands in the body.

        Raises:
            InputError: This slurmrestd cannot be told all that is asked for.
        """
        body = submit_body(asked, script, self._api())
        return self._ask("POST", "job/submit", parse_json.submitted, body)

    def jobs(self, slurm_ids: Collection[int] = ()) -> tuple[Job, ...]:
        """Get everybody's jobs, which cannot be asked for by id; read those that are meant."""
        only = frozenset(slurm_ids) or None
        return self._ask("GET", "jobs", lambda said: parse_json.jobs(said, only))

    def cancel(self, slurm_id: int) -> None:
        """Hold the job, so that it cannot start any more; then, if it has not, delete it."""
        place = f"job/{slurm_id}"
        try:
            self._ask("POST", place, answer, {"hold": True})
            told = self._ask("GET", place, parse_json.jobs)
            if all(job_phase(job.states) in (JobPhase.WAITING, JobPhase.HELD) for job in told):
                self._ask("DELETE", place, answer)
        except SlurmError as error:
            if _UNKNOWN_JOB not in error.codes:
                raise

    def accounted(self, slurm_ids: Collection[int]) -> Mapping[int, Used]:
        """Get them one by one: of all, the accounts would tell of everybody's."""
        found: dict[int, Used] = {}
        for slurm_id in slurm_ids:
            found |= self._ask("GET", f"job/{slurm_id}", usage.rest, of="slurmdb")
        return found

    def nodes(self) -> tuple[Node, ...]:
        """Get them."""
        return self._ask("GET", "nodes", parse_json.nodes)

    def partitions(self) -> tuple[Partition, ...]:
        """Get them."""
        return self._ask("GET", "partitions", parse_json.partitions)

    def reservations(self) -> tuple[Reservation, ...]:
        """Get them."""
        return self._ask("GET", "reservations", parse_json.reservations)

    def licences(self) -> tuple[Licence, ...]:
        """Get them."""
        return self._ask("GET", "licenses", parse_json.licences)

    def _ask(
        self,
        method: str,
        what: str,
        read: Callable[[bytes], T],
        body: Any = None,
        *,
        of: str = "slurm",
    ) -> T:
        """Return what ``read`` makes of the answer.

        Raises:
            AwayError: Neither slurmrestd nor, behind it, the controller could be asked.
            SiteError: It says no, or what cannot be read.
        """
        said = self._client.call(method, f"/{of}/{self._api()}/{what}", body)
        if said.status == HTTPStatus.NOT_FOUND and not said.body.lstrip().startswith(b"{"):
            if of == "slurmdb":
                raise SiteError("slurmrestd knows of no accounts")
            self._version = ""  # perhaps another release runs there now
            raise SiteError(f"slurmrestd has no {what} in its version of today")
        return self._read(said, read)

    def _read(self, said: Answer, read: Callable[[bytes], T]) -> T:
        try:
            return read(said.body)
        except SlurmError as error:
            if _NOT_AUTHENTIC in error.codes:
                raise self._client.rejected(str(error)) from error
            if is_away(str(error)) or (error.codes and _AWAY_CODES.issuperset(error.codes)):
                raise self._client.away(error) from error
            raise
        except SiteError as error:
            if said.status >= HTTPStatus.BAD_REQUEST:
                raise SiteError(f"slurmrestd answers HTTP {said.status}: {error}") from error
            raise

    def _api(self) -> str:
        """Return the newest version of its interface that it and we know."""
        if not self._version:
            for version in VERSIONS:
                said = self._client.call("GET", f"/slurm/{version}/ping")
                if said.status != HTTPStatus.NOT_FOUND:
                    self._read(said, answer)
                    self._version = version
                    break
            else:
                raise SiteError(
                    f"slurmrestd has none of the versions {VERSIONS[-1]} to {VERSIONS[0]} of its "
                    "interface, or something else answers at its address"
                )
        return self._version
