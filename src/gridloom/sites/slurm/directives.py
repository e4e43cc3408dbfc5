"""The words of ``#SBATCH`` lines: how sbatch takes a line apart, and how to write one (pure).

The rules are sbatch's own, not a shell's: a backslash takes the meaning from the next character
everywhere, also inside of quotes; a ``#`` that is not quoted ends the line, and so does an empty
word. (Tried with sbatch 22.05.)
"""

import re
from collections.abc import Iterator

MAGIC = "#SBATCH"
_OLD_MAGIC = "#SLURM"
"""What sbatch still reads, with a complaint."""

WORD_BYTES_MAX = 8000
"""So long may one word be: sbatch has room for 8191 bytes."""

_SPACES = " \t\n\v\f\r"
_PLAIN = re.compile(r"[^\s\"'\\#:][^\s\"'\\#]*")


def split(text: str) -> list[str]:
    """Return the words of what stands behind ``#SBATCH`` on one line.

    Raises:
        ValueError: A quote is not closed, or a word begins with a colon.
    """
    words: list[str] = []
    at = 0
    while True:
        word, at = _word(text, at)
        if not word:  # sbatch stops at an empty word, too
            return words
        words.append(word)


def quote(word: str) -> str:
    """Return ``word`` so that ``split`` finds it again.

    Raises:
        ValueError: It cannot be written on such a line: it is empty, too long, or has an end of
            line or a NUL in it.
    """
    if not word or any(char in word for char in "\n\r\0"):
        raise ValueError("it is empty or has an end of line in it")
    if len(word.encode(errors="surrogateescape")) > WORD_BYTES_MAX:
        raise ValueError(f"it is longer than {WORD_BYTES_MAX} bytes")
    if _PLAIN.fullmatch(word):
        return word
    return '"' + re.sub(r'(["\\#])', r"\\\1", word) + '"'


def directive(option: str, value: str = "") -> str:
    """Return the line that sets ``--option`` to ``value``, or only sets it.

    Raises:
        ValueError: ``value`` cannot be written on such a line.
    """
    return f"{MAGIC} --{option}={quote(value)}" if value else f"{MAGIC} --{option}"


def lines(script: str) -> Iterator[tuple[int, str, bool]]:
    """Yield the number and the words' text of each ``#SBATCH`` line, and whether sbatch reads it.

    It stops reading at the first line that is neither empty nor a comment.
    """
    is_read = True
    for number, line in enumerate(script.split("\n"), start=1):
        if line.startswith((MAGIC, _OLD_MAGIC)):
            yield number, line.removeprefix(MAGIC).removeprefix(_OLD_MAGIC), is_read
        elif (said := line.strip(_SPACES)) and not said.startswith("#"):
            is_read = False


def _word(text: str, at: int) -> tuple[str, int]:
    """Return the word that begins at or after ``at``, empty at the end, and where it ends."""
    while at < len(text) and text[at] in _SPACES:
        at += 1
    if text[at : at + 1] == ":":
        raise ValueError("a word cannot begin with a colon there")
    word: list[str] = []
    quoted = ""
    while at < len(text) and (quoted or text[at] not in _SPACES):
        char = text[at]
        at += 1
        if char == "\\":
            word.append(text[at : at + 1])
            at += 1
        elif quoted:
            quoted = _inside(char, quoted, word)
        elif char in "\"'":
            quoted = char
        elif char == "#":
            return "".join(word), len(text)
        else:
            word.append(char)
    if quoted:
        raise ValueError(f"a quote {quoted} is not closed")
    return "".join(word), at


def _inside(char: str, quoted: str, word: list[str]) -> str:
    """Take a character inside of quotes; return the quote that is still open."""
    if char == quoted:
        return ""
    word.append(char)
    return quoted
