"""Names of objects: legal, the same every time, never shared."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridloom.sites.kube.names import NAME_MAX, object_name

LABEL = re.compile(r"[a-z](?:[-a-z0-9]*[a-z0-9])?")


@pytest.mark.parametrize(
    ("job_id", "attempt", "life", "name"),
    [
        ("tiny-3fk2", 1, 1, "tiny-3fk2-a1"),
        ("tiny-3fk2", 12, 3, "tiny-3fk2-a12-l3"),
        ("Llama_7B", 1, 1, "llama-7b--5ee5a30d3253-a1"),
        ("7b", 1, 1, "b--443192f3a793-a1"),
        ("---", 1, 1, "job--663aad785157-a1"),
        ("x" * 60, 1, 1, "x" * 33 + "--8970a3ac2ef9-a1"),
    ],
)
def test_names(job_id: str, attempt: int, life: int, name: str) -> None:
    assert object_name(job_id, attempt, life=life) == name


IDS = st.text(min_size=1, max_size=80) | st.from_regex(r"[a-z0-9-]{1,60}", fullmatch=True)


@given(IDS, st.integers(1, 10**6), st.integers(1, 10**6))
def test_a_name_is_a_label_of_dns(job_id: str, attempt: int, life: int) -> None:
    name = object_name(job_id, attempt, life=life)
    assert LABEL.fullmatch(name)
    assert len(name) <= NAME_MAX


@given(IDS, IDS, st.integers(1, 99))
def test_jobs_do_not_share_names(one: str, other: str, attempt: int) -> None:
    assert (object_name(one, attempt) == object_name(other, attempt)) == (one == other)
