"""Accelerators of a node by resource and label, for every vendor."""

import re
from fractions import Fraction

import pytest
from tests.unit.sites.kube.schemas import DATA

from gridloom.sites.kube.accelerators import VENDORS, Found, accelerators, kind_of, vendor_of

GIB, MIB = 2**30, 2**20


def found(
    resource: str, labels: dict[str, str], count: int = 8, capacity: int = 8
) -> tuple[Found, ...]:
    return accelerators({resource: Fraction(count)}, {resource: Fraction(capacity)}, labels)


@pytest.mark.parametrize(
    ("product", "kind"),
    [
        ("NVIDIA-H100-80GB-HBM3", "h100"),
        ("NVIDIA-H200-NVL", "h200"),
        ("Tesla-T4", "t4"),
        ("NVIDIA-GB200", "gb200"),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "a100-1g.5gb"),
        ("NVIDIA-A100-SXM4-80GB-SHARED", "a100"),
        ("NVIDIA-GeForce-RTX-4090", "4090"),
        ("nvidia-h100-mega-80gb", "h100"),
        ("AMD_Instinct_MI300X_OAM", "mi300x"),
        ("Ascend910B3", "ascend910b3"),
        ("910B4", "910b4"),
        ("Unheard-Of", "unheard-of"),
        ("NVIDIA", ""),
    ],
)
def test_a_product_has_a_kind(product: str, kind: str) -> None:
    assert kind_of(product) == kind


CASES: dict[str, tuple[str, dict[str, str], str, int]] = {
    "nvidia": (
        "nvidia.com/gpu",
        {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559"},
        "h100",
        81559 * MIB,
    ),
    "gke": ("nvidia.com/gpu", {"cloud.google.com/gke-accelerator": "nvidia-l4"}, "l4", 0),
    "karpenter": (
        "nvidia.com/gpu",
        {
            "karpenter.k8s.aws/instance-gpu-name": "a100",
            "karpenter.k8s.aws/instance-gpu-memory": "40960",
        },
        "a100",
        40 * GIB,
    ),
    "nothing said": ("nvidia.com/gpu", {}, "gpu", 0),
    "only the maker": ("nvidia.com/gpu", {"nvidia.com/gpu.product": "NVIDIA"}, "gpu", 0),
    "amd": (
        "amd.com/gpu",
        {"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM", "amd.com/gpu.vram": "192G"},
        "mi300x",
        192 * GIB,
    ),
    "amd before": ("amd.com/gpu", {"beta.amd.com/gpu.vram": "64G"}, "amd-gpu", 64 * GIB),
    "ascend by chip": (
        "huawei.com/Ascend910",
        {"node.kubernetes.io/npu.chip.name": "910B3"},
        "ascend910b3",
        0,
    ),
    "ascend by name": (
        "huawei.com/Ascend910",
        {"node.kubernetes.io/npu.chip.name": "Ascend910C"},
        "ascend910c",
        0,
    ),
    "ascend by resource": ("huawei.com/Ascend910B4", {}, "ascend910b4", 0),
    "ascend in the cloud": ("huawei.com/ascend-1980", {}, "ascend-1980", 0),
    "gaudi": ("habana.ai/gaudi", {}, "gaudi", 0),
    "tpu v5p": (
        "google.com/tpu",
        {"cloud.google.com/gke-tpu-accelerator": "tpu-v5p-slice"},
        "tpu-v5p",
        0,
    ),
    "tpu v5e": (
        "google.com/tpu",
        {"cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice"},
        "tpu-v5e",
        0,
    ),
    "tpu v4": (
        "google.com/tpu",
        {"cloud.google.com/gke-tpu-accelerator": "tpu-v4-podslice"},
        "tpu-v4",
        0,
    ),
    "tpu 7x": ("google.com/tpu", {"cloud.google.com/gke-tpu-accelerator": "tpu7x"}, "tpu-7x", 0),
    "new tpu": (
        "google.com/tpu",
        {"cloud.google.com/gke-tpu-accelerator": "TPU Next"},
        "tpu next",
        0,
    ),
    "tpu": ("google.com/tpu", {}, "tpu", 0),
    "cambricon": ("cambricon.com/mlu", {}, "mlu", 0),
    "intel": ("gpu.intel.com/xe", {}, "intel-gpu", 0),
    "memory is no number": ("nvidia.com/gpu", {"nvidia.com/gpu.memory": "much"}, "gpu", 0),
}


@pytest.mark.parametrize(("resource", "labels", "kind", "memory_bytes"), CASES.values(), ids=CASES)
def test_what_a_node_has(
    resource: str, labels: dict[str, str], kind: str, memory_bytes: int
) -> None:
    (only,) = found(resource, labels)
    assert only == Found(resource=resource, kind=kind, count=8, broken=0, memory_bytes=memory_bytes)


def test_unhealthy_devices_are_counted_apart() -> None:
    (only,) = found("nvidia.com/gpu", {}, count=6)
    assert (only.count, only.broken) == (6, 2)


def test_a_node_that_lost_all_devices_still_has_them() -> None:
    (only,) = accelerators({}, {"amd.com/gpu": Fraction(4)}, {})
    assert (only.count, only.broken) == (0, 4)


def test_no_devices_no_entry() -> None:
    assert found("nvidia.com/gpu", {}, count=0, capacity=0) == ()


@pytest.mark.parametrize(
    "resource",
    [
        "cpu",
        "memory",
        "rdma/hca",
        "huawei.com/Ascend910B-memory",
        "nvidia.com/gpumem",
        "x.nvidia.com/gpu",
    ],
)
def test_what_is_no_accelerator(resource: str) -> None:
    assert vendor_of(resource) is None


@pytest.mark.parametrize(
    ("resource", "labels"),
    [
        ("nvidia.com/gpu", {"nvidia.com/gpu.replicas": "4"}),
        ("nvidia.com/gpu", {"nvidia.com/gpu.sharing-strategy": "mps"}),
        ("nvidia.com/gpu.shared", {}),
    ],
)
def test_shared_devices_are_called_so(resource: str, labels: dict[str, str]) -> None:
    assert found(resource, labels)[0].shared


def test_devices_that_are_not_shared() -> None:
    labels = {"nvidia.com/gpu.replicas": "1", "nvidia.com/gpu.sharing-strategy": "none"}
    assert not found("nvidia.com/gpu", labels)[0].shared
    assert not found("amd.com/gpu", {"nvidia.com/gpu.replicas": "4"})[0].shared


def test_the_labels_that_are_read_are_those_that_gpu_feature_discovery_sets() -> None:
    text = (DATA / "nodes" / "gfd_expected-output.txt").read_text(encoding="utf-8")
    set_ = {re.sub(r"\\(.)", r"\1", line.partition("=")[0]) for line in text.splitlines()}
    read = {*VENDORS[0].products, *VENDORS[0].memory}
    own = {name for name in read if name.startswith("nvidia.com/")}
    assert own | {"nvidia.com/gpu.replicas", "nvidia.com/gpu.sharing-strategy"} <= set_
