"""What the operating system refused, as one of our own errors: a sentence, no traceback."""

import errno

from gridloom.base.errors import GridloomError, InputError, SiteError
from gridloom.base.files import FULL, cause_of
from gridloom.cli.stdio import STANDARD_ERROR, STANDARD_OUTPUT

UTF8_REMEDY = "rename it, or set LC_ALL=C.UTF-8"

_YOURS = frozenset(
    {
        *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR),
        *(errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL),
    }
)
"""What is wrong with a name or with a right: another one would do."""


def told(error: OSError | UnicodeError) -> GridloomError:
    """Return the error that says what happened."""
    if isinstance(error, UnicodeEncodeError):
        return InputError(f"{not_utf8(error.object)}; {UTF8_REMEDY}")
    if isinstance(error, UnicodeError):
        return InputError(f"text that cannot be read: {error}")
    if error.filename in (STANDARD_OUTPUT, STANDARD_ERROR):
        return SiteError(f"{error.filename} cannot be written: {error.strerror}")
    place = f"{error.filename!s}: " if error.filename else ""
    if error.errno in FULL:
        return SiteError(f"{place}the disk is full: free space there, then `gridloom resume JOB`")
    kind = InputError if error.errno in _YOURS else SiteError
    return kind(f"{place}{cause_of(error)}")


def not_utf8(path: str) -> str:
    """Return the sentence about a path whose bytes are no text here."""
    return f"{path!a}: the path is not UTF-8 in this locale"
