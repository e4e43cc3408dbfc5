"""The options that sbatch knows, which of them take a value, and how it finds them in words (pure).

The names are those of the manual page of sbatch, from 20.11 to 25.11.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Takes = Literal["value", "perhaps", "nothing"]

_SHORT = """
    A=account a=array B=extra-node-info b=begin C=constraint c=cpus-per-task D=chdir d=dependency
    e=error F=nodefile G=gpus H=hold h=help i=input J=job-name k=no-kill L=licenses M=clusters
    m=distribution N=nodes n=ntasks O=overcommit o=output p=partition Q=quiet q=qos S=core-spec
    s=oversubscribe t=time V=version v=verbose W=wait w=nodelist x=exclude
"""
_VALUE = """
    account acctg-freq array batch bb bbf begin chdir cluster cluster-constraint clusters comment
    constraint container container-id core-spec cores-per-socket cpu-freq cpus-per-gpu
    cpus-per-task deadline delay-boot dependency distribution error exclude export export-file
    extra extra-node-info gid gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task
    gres gres-flags hint input job-name kill-on-invalid-dep licenses mail-type mail-user mcs-label
    mem mem-bind mem-per-cpu mem-per-gpu mincpus network nodefile nodelist nodes ntasks
    ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket open-mode output partition
    power prefer priority profile qos reservation segment signal sockets-per-node switches tasks
    tasks-per-node thread-spec threads-per-core time time-min tmp tres-bind tres-per-task uid
    wait-all-nodes wckey workdir wrap
"""
_PERHAPS = """
    exclusive get-user-env nice no-kill oom-kill-step parsable propagate resv-ports
"""
_NOTHING = """
    consolidate-segments contiguous help hold ignore-pbs no-requeue overcommit oversubscribe quiet
    reboot requeue share spread-job spread-segments stepmgr test-only usage use-min-nodes verbose
    version wait
"""
_SAME = {"tasks": "ntasks", "tasks-per-node": "ntasks-per-node", "workdir": "chdir"}
_BY_LETTER = dict(pair.split("=") for pair in _SHORT.split())
KNOWN: dict[str, Takes] = {
    **dict.fromkeys(_VALUE.split(), "value"),
    **dict.fromkeys(_PERHAPS.split(), "perhaps"),
    **dict.fromkeys(_NOTHING.split(), "nothing"),
}
"""Options by their long names, and what each takes."""


@dataclass(frozen=True)
class Word:
    """One word, and the number of the line it stands on."""

    text: str
    line: int


@dataclass(frozen=True)
class Setting:
    """One option, as it is set.

    Attributes:
        name: Its long name without dashes; as it is written if sbatch does not know it.
        value: Empty for none.
        written: As it stands there, as ``-N 4``.
        line: Where it stands.
    """

    name: str
    value: str
    written: str
    line: int

    @property
    def is_known(self) -> bool:
        """Whether sbatch itself knows it: additions to sbatch bring options of their own."""
        return self.name in KNOWN


@dataclass
class Found:
    """What words say.

    Attributes:
        settings: The options, in their order.
        errors: What sbatch would refuse: a sentence, the line and the word.
    """

    settings: list[Setting] = field(default_factory=list)
    errors: list[tuple[str, Word]] = field(default_factory=list)


def read(words: Sequence[Word]) -> Found:
    """Return the options that ``words`` set, as sbatch finds them: a value may be the next word."""
    found = Found()
    at = 0
    while at < len(words):
        word = words[at]
        following = words[at + 1] if at + 1 < len(words) else None
        if word.text.startswith("--") and len(word.text) > 2:
            at += _long(word, following, found)
        elif word.text.startswith("-") and len(word.text) > 1:
            at += _short(word, following, found)
        else:
            found.errors.append(("this is no option", word))
            at += 1
    return found


def _long(word: Word, following: Word | None, found: Found) -> int:
    """Read ``--name``, ``--name=value`` or ``--name value``; return how many words that took."""
    said, equals, value = word.text[2:].partition("=")
    names = [said] if said in KNOWN else [name for name in KNOWN if name.startswith(said)]
    names = sorted({_SAME.get(name, name) for name in names})
    if len(names) > 1:
        choices = ", ".join(f"--{name}" for name in names[:4])
        found.errors.append((f"it could be {choices}", word))
        return 1
    name = names[0] if names else said
    takes = KNOWN.get(name, "perhaps")
    if equals and takes == "nothing":
        found.errors.append((f"--{name} takes no value", word))
        return 1
    if equals or takes != "value":
        # Who added an option that sbatch does not know said what it takes: look what follows
        is_value = not equals and name not in KNOWN and following and following.text[:1] != "-"
        if is_value and following:
            written = f"{word.text} {following.text}"
            found.settings.append(Setting(name, following.text, written, word.line))
            return 2
        found.settings.append(Setting(name, value, word.text, word.line))
        return 1
    return _with_next(name, word, following, found)


def _short(word: Word, following: Word | None, found: Found) -> int:
    """Read ``-N4``, ``-N 4`` or several such as ``-HQ``; return how many words that took."""
    for at, letter in enumerate(word.text[1:], start=2):
        name, rest = _BY_LETTER.get(letter, ""), word.text[at:]
        if not name:
            found.errors.append((f"sbatch knows no -{letter}", word))
            return 1
        if KNOWN[name] == "nothing":
            found.settings.append(Setting(name, "", f"-{letter}", word.line))
            continue
        if rest.startswith("="):
            message = f"a value stands behind -{letter} without '=', or behind --{name}="
            found.errors.append((message, word))
            return 1
        if rest or KNOWN[name] == "perhaps":
            found.settings.append(Setting(name, rest, word.text, word.line))
            return 1
        return _with_next(name, word, following, found)
    return 1


def _with_next(name: str, word: Word, following: Word | None, found: Found) -> int:
    if following is None:
        found.errors.append((f"--{name} wants a value", word))
        return 1
    written = f"{word.text} {following.text}"
    found.settings.append(Setting(name, following.text, written, word.line))
    return 2
