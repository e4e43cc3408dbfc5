"""``gridloom schema``."""

from typing import Literal

from gridloom.cli.flags import Json


def schema(document: Literal["job", "grid"], /, *, json: Json = False) -> int:
    """Print the JSON Schema of a job file or a grid file, for editors and checks."""
    import sys

    from gridloom.base.codec import encode, pretty
    from gridloom.wire.schema import grid_schema, job_schema

    found = job_schema() if document == "job" else grid_schema()
    sys.stdout.write(encode(found).decode() + "\n" if json else pretty(found))
    return 0
