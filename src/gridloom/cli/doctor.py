"""``gridloom doctor``."""

from gridloom.cli.flags import Json


def doctor(*, json: Json = False) -> int:
    """Check this machine and the state directory; exit code 1 when something must be mended."""
    from gridloom.cli import settings
    from gridloom.cli.checks import run_checks
    from gridloom.cli.output import console, emit, table

    checks = run_checks(settings.read())
    failed = [check for check in checks if check.state == "bad"]
    if json:
        listed = [
            {"check": c.name, "state": c.state, "found": c.found, "remedy": c.remedy}
            for c in checks
        ]
        emit({"ok": not failed, "checks": listed})
    else:
        rows = [(c.state, c.name, c.found, c.remedy) for c in checks]
        console().print(table(("", "check", "found", "remedy"), rows, whole=("", "check")))
    return 1 if failed else 0
