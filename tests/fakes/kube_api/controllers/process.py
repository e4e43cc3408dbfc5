"""A container's command as a real process of this machine, with its environment and its end.

As in a container, nothing of it outlives its first process.
"""

import base64
import contextlib
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import psutil
from tests.fakes.kube_api.controllers.loop import Hands
from tests.fakes.kube_api.status import Obj

_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_][\w.-]*)\)")
_MARK = "PRETENDED_CONTAINER"
"""Variable that all processes of a container have, unless they hide it."""
_SUBSCRIPT = re.compile(r"^metadata\.(labels|annotations)\['([^']+)'\]$")


def environment(hands: Hands, pod: Obj, container: Obj) -> dict[str, str]:
    """Return the variables of a container, from its pod, from secrets and from config maps.

    Raises:
        LookupError: What one refers to is not there.
    """
    found: dict[str, str] = {}
    namespace = pod["metadata"]["namespace"]
    for source in container.get("envFrom") or ():
        for plural, part in (("secrets", "secretRef"), ("configmaps", "configMapRef")):
            if part in source:
                values = _data(hands, plural, namespace, source[part])
                prefix = source.get("prefix", "")
                found |= {f"{prefix}{name}": value for name, value in values.items()}
    for one in container.get("env") or ():
        if "valueFrom" in one:
            value = _from(hands, pod, one["valueFrom"])
            if value is not None:
                found[one["name"]] = value
        else:
            found[one["name"]] = expand(one.get("value", ""), found)
    return found


def _data(hands: Hands, plural: str, namespace: str, reference: Obj) -> dict[str, str]:
    obj = hands.get(plural, namespace, reference["name"])
    if obj is None:
        if reference.get("optional"):
            return {}
        raise LookupError(f'{plural[:-1]} "{reference["name"]}" not found')
    data = obj.get("data") or {}
    if plural == "secrets":
        return {name: base64.b64decode(one).decode() for name, one in data.items()}
    return dict(data)


def _from(hands: Hands, pod: Obj, source: Obj) -> str | None:
    namespace = pod["metadata"]["namespace"]
    for plural, part in (("secrets", "secretKeyRef"), ("configmaps", "configMapKeyRef")):
        if part in source:
            values = _data(hands, plural, namespace, source[part])
            key = source[part]["key"]
            if key not in values and not source[part].get("optional"):
                raise LookupError(
                    f"couldn't find key {key} in {plural[:-1]} {namespace}/{source[part]['name']}"
                )
            return values.get(key)
    if "fieldRef" not in source:
        raise LookupError(f"a value from {next(iter(source))} is not played here")
    return _field(pod, source["fieldRef"]["fieldPath"])


def _field(pod: Obj, path: str) -> str:
    if match := _SUBSCRIPT.match(path):
        return str((pod["metadata"].get(match[1]) or {}).get(match[2], ""))
    known = {
        "metadata.name": pod["metadata"]["name"],
        "metadata.namespace": pod["metadata"]["namespace"],
        "metadata.uid": pod["metadata"]["uid"],
        "spec.nodeName": pod["spec"].get("nodeName", ""),
        "spec.serviceAccountName": pod["spec"].get("serviceAccountName", ""),
        "status.podIP": "127.0.0.1",
        "status.hostIP": "127.0.0.1",
    }
    return str(known[path])


def expand(text: str, variables: dict[str, str]) -> str:
    """Return a text with ``$(NAME)`` replaced where NAME is known; ``$$`` is a dollar sign."""

    def replace(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return variables.get(match[1], match[0])

    return _REFERENCE.sub(replace, text)


class ContainerProcess:
    """One running command, in a process group of its own.

    Args:
        container: Whose ``command``, ``args`` and ``lifecycle`` are heeded.
        variables: Its environment; the machine's PATH is added where it has none.
        folder: Where it works.
        lines: Takes what it prints, line by line.
        wake: Called when a line came or it has ended.
    """

    def __init__(
        self,
        container: Obj,
        variables: dict[str, str],
        folder: Path,
        lines: list[str],
        wake: Callable[[], None],
    ) -> None:
        command = [*(container.get("command") or ()), *(container.get("args") or ())]
        if not command:
            raise LookupError("no command specified, and images are not played here")
        self._mark = f"{folder}/{container['name']}"
        self._variables = {"PATH": os.defpath, **variables, _MARK: self._mark}
        self._folder, self._lines, self._wake = folder, lines, wake
        self._hook = ((container.get("lifecycle") or {}).get("preStop") or {}).get("exec")
        self._process = subprocess.Popen(
            [expand(one, variables) for one in command],
            cwd=folder,
            env=self._variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._is_read = threading.Event()
        reader = threading.Thread(target=self._read, daemon=True)
        reader.start()
        threading.Thread(target=self._attend, args=(reader,), daemon=True).start()

    def exit_code(self) -> int | None:
        """Return its exit code, 128 + signal where one ended it; None while it runs."""
        if not self._is_read.is_set():
            return None
        code = self._process.wait()
        return code if code >= 0 else 128 - code

    def stop(self, grace_s: float) -> None:
        """Run preStop, then send SIGTERM, and SIGKILL when the grace is over; return at once."""
        threading.Thread(target=self._stop, args=(grace_s,), daemon=True).start()

    def kill(self) -> None:
        """Send SIGKILL to its whole group, and wait for its end."""
        self._signal(signal.SIGKILL, whole=True)
        self._is_read.wait(5)
        self._process.wait(5)

    def _stop(self, grace_s: float) -> None:
        timer = threading.Timer(grace_s, self._signal, (signal.SIGKILL,), {"whole": True})
        timer.daemon = True
        timer.start()
        if self._hook is not None:
            hook = subprocess.Popen(
                [expand(one, self._variables) for one in self._hook["command"]],
                cwd=self._folder,
                env=self._variables,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            try:
                hook.wait(grace_s)
            except subprocess.TimeoutExpired:
                os.killpg(hook.pid, signal.SIGKILL)
                hook.wait()
        self._signal(signal.SIGTERM, whole=False)  # to the first process only, as containers get it
        self._is_read.wait(grace_s + 5)
        timer.cancel()

    def _signal(self, number: int, *, whole: bool) -> None:
        try:
            if whole:
                os.killpg(self._process.pid, number)
            elif self._process.poll() is None:
                os.kill(self._process.pid, number)
        except ProcessLookupError:
            return  # it ended by itself

    def _attend(self, reader: threading.Thread) -> None:
        """Wait for the first process; end all others with it."""
        self._process.wait()
        while left := self._inside():
            for one in left:
                with contextlib.suppress(psutil.Error):
                    one.kill()
            psutil.wait_procs(left, timeout=1)
        reader.join()
        self._is_read.set()
        self._wake()

    def _inside(self) -> list[psutil.Process]:
        """Return all processes that bear the mark, and what descends from them."""
        found: dict[int, psutil.Process] = {}
        for one in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if one.environ().get(_MARK) == self._mark and _lives(one):
                    found |= {each.pid: each for each in (one, *one.children(recursive=True))}
        return [one for one in found.values() if _lives(one)]

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                self._lines.append(line.rstrip("\n"))
                self._wake()


def _lives(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
