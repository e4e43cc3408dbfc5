"""What can go wrong with what is at the other end of a link."""

from gridloom.base.errors import SiteError


class RemoteError(SiteError):
    """Something at the other end could not be done.

    Attributes:
        sentence: What, and why.
        remedy: What helps; empty where nobody knows.
    """

    def __init__(self, sentence: str, remedy: str = "") -> None:
        self.sentence, self.remedy = sentence, remedy
        super().__init__(f"{sentence}; {remedy}" if remedy else sentence)


class LinkDownError(RemoteError):
    """The other end is not reached now: the same call may succeed soon."""


class LinkRefusedError(RemoteError):
    """It is reached, and one of both ends will not speak with the other."""


class RemoteFileError(RemoteError):
    """A file or directory there cannot be read or written."""
