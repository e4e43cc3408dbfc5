"""``gridloom run``."""

from gridloom.cli.flags import Grid, JobPath, Json, Yes


def run(job: JobPath, /, *, grid: Grid = None, yes: Yes = False, json: Json = False) -> int:
    """Run a job and follow it to its end.

    Shows where it will run and asks, unless -y. Ctrl-C stops it with its state saved.
    """
    from gridloom.base.errors import InputError
    from gridloom.base.system import SystemIds
    from gridloom.cli import settings
    from gridloom.cli.dependencies import with_known_dependencies
    from gridloom.cli.finish import follow_to_the_end
    from gridloom.cli.follow import Interrupts
    from gridloom.cli.handin import confirm, hand_in, show_plan
    from gridloom.cli.home import usable
    from gridloom.cli.output import say
    from gridloom.cli.prepare import prepare
    from gridloom.cli.submit import notes_of
    from gridloom.cli.wiring import Plane

    found = usable(settings.read())
    prepared = with_known_dependencies(prepare(job, grid, found, SystemIds()), found)
    if prepared.file.document.array is not None:
        remedy = f"hand it in by `gridloom submit {job}`"
        message = "`run` follows one job, and this is an array of jobs"
        raise InputError([prepared.file.problem(("array",), message, remedy)])
    if not json:
        show_plan(prepared)
        for note in notes_of(prepared):
            say(note, stderr=True)
    if not confirm(yes=yes or json):
        say("not handed in")
        return 1
    plane = Plane(found)
    recipe = prepared.spec.recipe
    steps = recipe.training.steps if recipe else 0
    with Interrupts() as interrupts:
        hand_in(plane, prepared)
        return follow_to_the_end(
            plane, prepared.job_id, steps, interrupts, as_json=json, new=prepared.spec.name
        )
