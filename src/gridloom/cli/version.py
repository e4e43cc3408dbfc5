"""``gridloom version``."""

from gridloom import __version__
from gridloom.cli.flags import Json


def version(*, json: Json = False) -> int:
    """Print the version."""
    if json:
        import json as codec

        print(codec.dumps({"version": __version__}))
    else:
        print(__version__)
    return 0
