"""What a token says of itself."""

import pytest
from tests.unit.sites.slurm.tokens import token

from gridloom.base.errors import SiteError
from gridloom.sites.slurm.token import Claims, claims, complaint, read_token


@pytest.mark.parametrize("form", ["{}", "SLURM_JWT={}\n", "export SLURM_JWT='{}'\n", " {}\n\n"])
def test_a_token_is_found_as_it_is_printed(form: str) -> None:
    assert read_token(form.format(token()), "it") == token()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it is empty instead of a token of Slurm"),
        (" \n", "it is empty instead of a token of Slurm"),
        ("secret", "it has no token of Slurm, as `scontrol token` prints it"),
        ("a.!.c", "it has no token of Slurm, as `scontrol token` prints it"),
        ("a.bm8.c", "it has no token of Slurm, as `scontrol token` prints it"),
        ("a.é.c", "it has no token of Slurm, as `scontrol token` prints it"),
    ],
)
def test_what_is_no_token_is_not_repeated(text: str, said: str) -> None:
    with pytest.raises(SiteError) as raised:
        read_token(text, "it")
    assert str(raised.value) == said


def test_what_it_claims() -> None:
    assert claims(token()) == Claims(user="alice", expires_s=2_000_000.0)
    assert claims(token("", None)) == Claims()
    assert claims(token("", None, username="bob")).user == "bob"
    assert not claims(token("", None)).is_over(9e9)


def test_what_is_wrong_with_it() -> None:
    claimed = claims(token())
    assert complaint(claimed, "alice", "it", 1_999_999.0) == ""
    assert complaint(claimed, "alice", "it", 2_000_000.0) == (
        "the token of it has expired at 1970-01-24 03:33:20 UTC: put a new one there"
    )
    assert complaint(claimed, "bob", "it", 0.0) == "the token of it is user alice's, not bob's"
    assert complaint(Claims(), "bob", "it", 0.0) == ""
