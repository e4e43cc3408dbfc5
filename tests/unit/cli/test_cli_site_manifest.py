"""What the account of a site is printed as, and which site is meant."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from tests.unit.cli.conftest import Answer

from gridloom.sites.kube.render import Form
from gridloom.sites.kube.role import Access, role_manifests

Call = Callable[..., Answer]

SITE = "{kind: kubernetes, accelerators: cpu:4, kubernetes: {image: 'x:1', namespace: %s, %s}}"


@pytest.fixture
def grid(home: Path, tmp_path: Path) -> Callable[..., str]:
    def write(**sites: str) -> str:
        path = tmp_path / "grid.yaml"
        path.write_text("sites:\n" + "".join(f"  {k}: {v}\n" for k, v in sites.items()))
        return str(path)

    return write


def test_the_rights_are_those_of_the_role(call: Call, grid: Callable[..., str]) -> None:
    path = grid(hpc=SITE % ("team-a", "queue: q, workload: jobset"), lab="{accelerators: cpu}")
    answer = call("site", "manifest", "kube", "--grid", path)
    assert answer.code == 0
    access = Access(namespace="team-a", forms=(Form.JOB_SET,))
    assert list(yaml.safe_load_all(answer.out)) == list(role_manifests(access))


def test_without_a_queue_nothing_of_kueue_is_read(call: Call, grid: Callable[..., str]) -> None:
    path = grid(a=SITE % ("x", ""), b=SITE % ("y", ""))
    answer = call("site", "manifest", "kube", "b", "-g", path, "--account", "us", "--json")
    access = Access(name="us", namespace="y", kueue=False)
    assert answer.json() == {"manifests": list(role_manifests(access))}


@pytest.mark.parametrize(
    ("sites", "words", "said"),
    [
        ({"lab": "{accelerators: cpu}"}, (), "no site of the grid is a Kubernetes; write"),
        ({"a": SITE % ("x", ""), "b": SITE % ("y", "")}, (), "several sites; name one of a, b"),
        ({"hpc": SITE % ("x", "")}, ("hpd",), "did you mean `hpc`?"),
        ({"hpc": SITE % ("x", "")}, ("else",), "there are: hpc"),
    ],
    ids=["none", "several", "near", "far"],
)
def test_another_site_is_answered_with_what_there_is(
    call: Call, grid: Callable[..., str], sites: dict[str, str], words: tuple[str, ...], said: str
) -> None:
    answer = call("site", "manifest", "kube", *words, "-g", grid(**sites))
    assert answer.code == 2
    assert said in answer.err
