"""``gridloom node``."""

from typing import Annotated, Literal

import cyclopts
from cyclopts import Parameter

from gridloom.cli.flags import Json

_WAIT_S = 30.0

app = cyclopts.App(name="node", help_format="plaintext", result_action="return_value")

Domain = Annotated[
    str, Parameter(help="A node, as SITE/NODE or by its name alone, or a whole site.")
]
Because = Annotated[str, Parameter(name="--reason", help="Why, for others to read.")]


@app.command(name="drain")
def drain(node: Domain, /, *, reason: Because = "", json: Json = False) -> int:
    """Let a node, or all nodes of a site, do no more work: jobs there save their state and move."""
    return _mark(node, "drain", reason, json=json)


@app.command(name="cordon")
def cordon(node: Domain, /, *, reason: Because = "", json: Json = False) -> int:
    """Let a node, or all nodes of a site, get no new work; what runs there goes on."""
    return _mark(node, "cordon", reason, json=json)


@app.command(name="restore")
def restore(node: Domain, /, *, json: Json = False) -> int:
    """Let a node, or all nodes of a site, work again, whatever kept it from that."""
    from gridloom.base.errors import InputError
    from gridloom.cli.ask import ask
    from gridloom.cli.lookup import open_plane
    from gridloom.cli.marks import WORDS, find_domain
    from gridloom.cli.output import emit, say
    from gridloom.model.event import NodeMarked
    from gridloom.model.inventory import Inventory

    plane = open_plane()
    state = plane.state()
    domain = find_domain(state.inventory or Inventory(sites=()), node)
    site = domain.partition("/")[0]
    if site != domain and site in state.marks:
        word = WORDS[state.marks[site].mark]
        raise InputError(f"{site} as a whole is {word}; `gridloom node restore {site}` restores it")
    marked = [key for key in sorted(state.marks) if key == domain or key.startswith(f"{domain}/")]
    wishes = [NodeMarked(domain=key, mark="") for key in marked or [domain]]
    ask(
        plane,
        wishes,
        lambda state: not any(key in state.marks for key in marked),
        wait_s=_WAIT_S,
        late=f"{domain} is not restored yet; `gridloom doctor` tells",
    )
    if json:
        emit({"domain": domain, "mark": None, "restored": marked})
    else:
        say(f"{domain} works again" if marked else f"{domain} was not marked")
    return 0


def _mark(node: str, mark: Literal["cordon", "drain"], reason: str, *, json: bool) -> int:
    from gridloom.cli.ask import ask
    from gridloom.cli.lookup import open_plane
    from gridloom.cli.marks import WORDS, find_domain, jobs_on
    from gridloom.cli.output import emit, say
    from gridloom.core.state import State
    from gridloom.model.event import NodeMarked
    from gridloom.model.inventory import Inventory

    plane = open_plane()
    before = plane.state()
    domain = find_domain(before.inventory or Inventory(sites=()), node)
    jobs = jobs_on(before, domain)  # once the mark is taken in, they may have moved
    sentence = " ".join(reason.split())

    def taken_in(state: State) -> bool:
        found = state.marks.get(domain)
        return found is not None and (found.mark, found.sentence) == (mark, sentence)

    ask(
        plane,
        [NodeMarked(domain=domain, mark=mark, sentence=sentence)],
        taken_in,
        wait_s=_WAIT_S,
        late=f"{domain} is not {WORDS[mark]} yet; `gridloom doctor` tells",
    )
    if json:
        emit({"domain": domain, "mark": mark, "reason": sentence, "jobs": jobs})
        return 0
    say(f"{domain} is {WORDS[mark]}")
    for job_id in jobs:
        say(f"{job_id} {'saves its state and moves' if mark == 'drain' else 'runs there on'}")
    return 0
