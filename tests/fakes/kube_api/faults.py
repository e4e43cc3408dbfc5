"""Faults that a server is told to play, by verb, resource and count of requests."""

import threading
from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong.

    Attributes:
        verb: As RBAC names it; ``*`` for any.
        resource: The plural, with the subresource (``pods/log``); ``*`` for any.
        nth: From which matching request on, from 1.
        times: For how many requests; 0 for all that follow.
        code: HTTP code to answer, without doing anything; 0 to do what was asked.
        retry_after_s: The ``Retry-After`` of that answer.
        delay_s: Seconds before anything is done.
        drop: ``before`` closes the connection with nothing done; ``after`` does what was asked and
            closes it without an answer.
        cut_after: A watch or log is cut off after so many events or lines; None for not at all.
        half: The piece after which it is cut off is sent only in half.
    """

    verb: str = "*"
    resource: str = "*"
    nth: int = 1
    times: int = 1
    code: int = 0
    retry_after_s: int | None = None
    delay_s: float = 0.0
    drop: str = ""
    cut_after: int | None = None
    half: bool = False


class Faults:
    """The faults of one server, and how often each was met."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[tuple[Fault, list[int]]] = []

    def add(self, fault: Fault) -> None:
        """Play a fault from now on: requests are counted from here."""
        with self._lock:
            self._faults.append((fault, [0]))

    def clear(self) -> None:
        """Play no more."""
        with self._lock:
            self._faults.clear()

    def of(self, verb: str, resource: str) -> Fault | None:
        """Count a request; return the fault that it meets, if any."""
        with self._lock:
            met = None
            for fault, count in self._faults:
                if fault.verb in ("*", verb) and fault.resource in ("*", resource):
                    count[0] += 1
                    past = count[0] - fault.nth
                    if past >= 0 and (not fault.times or past < fault.times):
                        met = met or fault
            return met
