"""An account at a pretended cluster that may do what gridloom's role says, and no more."""

from pathlib import Path

import yaml
from tests.fakes.kube_api.server import KubeApi

from gridloom.sites.kube.render import Form
from gridloom.sites.kube.role import Access, role_manifests

SRC = Path(__file__).parents[3] / "src"
POD_ENVIRONMENT = {"PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1"}
"""What pods that are processes of this machine need to find the code under test."""


def kubeconfig(api: KubeApi, place: Path, *, namespace: str, form: Form = Form.JOB) -> Path:
    """Make a namespace and the account in it; return a kubeconfig file for it."""
    if namespace != "default":
        api.do("create", "v1", "namespaces", body={"metadata": {"name": namespace}})
    for one in role_manifests(Access(namespace=namespace, forms=(form,))):
        where = one["metadata"].get("namespace", "")
        plural = f"{one['kind'].lower()}s"
        api.do("create", one["apiVersion"], plural, namespace=where, body=one)
    said = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "fake", "cluster": {"server": api.url}}],
        "users": [{"name": "us", "user": {"token": api.token_of(namespace, "gridloom")}}],
        "contexts": [{"name": "us", "context": {"cluster": "fake", "user": "us"}}],
        "current-context": "us",
    }
    path = place / f"{namespace}.kubeconfig"
    path.write_text(yaml.safe_dump(said))
    return path
