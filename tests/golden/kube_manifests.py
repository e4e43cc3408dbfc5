"""Manifests as they are sent to a cluster, for every form, from the least to all that can be said.

`python -m tests.golden.kube_manifests` writes them beside this file.
"""

from pathlib import Path

from tests.unit.sites.kube.submissions import EVERY

from gridloom.sites.kube.render import Form, manifests, to_yaml
from gridloom.sites.kube.role import Access, role_manifests

HERE = Path(__file__).parent / "kube"


def texts() -> dict[str, str]:
    """Return the text of every file, by its name."""
    found = {
        f"{form}_{name}.yaml": to_yaml(manifests(submission, form))
        for name, submission in EVERY.items()
        for form in Form
    }
    found["role.yaml"] = to_yaml(role_manifests(Access(namespace="team-a", forms=tuple(Form))))
    bare = Access(name="grid-b", namespace="team-b", kueue=False)
    found["role_without_kueue.yaml"] = to_yaml(role_manifests(bare))
    return found


if __name__ == "__main__":
    for name, text in texts().items():
        (HERE / name).write_text(text, encoding="utf-8")
