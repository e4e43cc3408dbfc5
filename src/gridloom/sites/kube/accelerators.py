"""Which accelerators a node has, by its resources and its vendors' labels (pure)."""

import re
from collections.abc import Mapping
from fractions import Fraction

import msgspec

_MIB = 2**20
_GIB = 2**30


class Vendor(msgspec.Struct, frozen=True, kw_only=True):
    """How one kind of accelerator shows on a node.

    Attributes:
        resource: Pattern of the resource's whole name.
        products: Labels that may name the product, best first.
        memory: Labels that may tell the memory of one device, best first.
        memory_unit: Bytes of one, where the label has no unit.
        kind: When no label names the product.
        prefix: Before a product that does not name its family.
    """

    resource: str
    products: tuple[str, ...] = ()
    memory: tuple[str, ...] = ()
    memory_unit: int = _MIB
    kind: str
    prefix: str = ""


VENDORS = (
    Vendor(
        resource=r"nvidia\.com/(?:gpu(?:\.shared)?|mig-.+)",
        products=(
            "nvidia.com/gpu.product",  # GPU feature discovery
            "cloud.google.com/gke-accelerator",
            "karpenter.k8s.aws/instance-gpu-name",
        ),
        memory=("nvidia.com/gpu.memory", "karpenter.k8s.aws/instance-gpu-memory"),
        kind="gpu",
    ),
    Vendor(
        resource=r"amd\.com/gpu",
        products=("amd.com/gpu.product-name", "beta.amd.com/gpu.product-name"),
        memory=("amd.com/gpu.vram", "beta.amd.com/gpu.vram"),
        memory_unit=_GIB,
        kind="amd-gpu",
    ),
    Vendor(
        resource=r"huawei\.com/[Aa]scend[-A-Za-z0-9]*",
        products=("node.kubernetes.io/npu.chip.name", "servertype"),
        kind="ascend",
        prefix="ascend",
    ),
    Vendor(resource=r"habana\.ai/gaudi", products=("habana.ai/product",), kind="gaudi"),
    Vendor(
        resource=r"google\.com/tpu",
        products=("cloud.google.com/gke-tpu-accelerator",),
        kind="tpu",
    ),
    Vendor(resource=r"metax-tech\.com/gpu", kind="metax"),
    Vendor(resource=r"cambricon\.com/mlu", kind="mlu"),
    Vendor(resource=r"hygon\.com/dcu", kind="dcu"),
    Vendor(resource=r"gpu\.intel\.com/(?:i915|xe)", kind="intel-gpu"),
)

_MAKERS = ("nvidia", "tesla", "geforce", "quadro", "amd", "instinct", "radeon", "huawei")
_SUFFIX = re.compile(r"-(?:MIG-(?P<slice>.+?)|(?P<shared>SHARED))$", re.IGNORECASE)
_NOT_DEVICES = re.compile(r".*(?:-memory|[-.]core|[-.]cores)$")
_TPU = re.compile(r"tpu-?(v\d+[a-z]*|\d+x)(?:-(lite)?-?(?:podslice|device|slice))?")


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The accelerators of one resource of a node.

    Attributes:
        resource: Name of the resource.
        kind: As ``h100``, ``mi300x``, ``ascend910b3`` or, for a slice, ``a100-1g.5gb``.
        count: How many can be asked for.
        broken: How many more the node has, which its device plugin calls unhealthy.
        memory_bytes: Of one; 0 when unknown.
        shared: Each is handed to several pods at once, so that none has a device to itself.
    """

    resource: str
    kind: str
    count: int
    broken: int
    memory_bytes: int
    shared: bool = False


def accelerators(
    allocatable: Mapping[str, Fraction],
    capacity: Mapping[str, Fraction],
    labels: Mapping[str, str],
) -> tuple[Found, ...]:
    """Return what a node has, one entry a resource of which it has any, by the resource's name."""
    found = []
    for resource in sorted({*allocatable, *capacity}):
        vendor = vendor_of(resource)
        count = int(allocatable.get(resource, 0))
        total = max(count, int(capacity.get(resource, 0)))
        if vendor is None or not total:
            continue
        product = _first(labels, vendor.products)
        found.append(
            Found(
                resource=resource,
                kind=_kind(vendor, resource, product),
                count=count,
                broken=total - count,
                memory_bytes=_memory_bytes(vendor, resource, labels),
                shared=_is_shared(resource, labels),
            )
        )
    return tuple(found)


def vendor_of(resource: str) -> Vendor | None:
    """Return whose devices a resource counts, or nothing when it counts none."""
    if _NOT_DEVICES.fullmatch(resource):
        return None
    return next((one for one in VENDORS if re.fullmatch(one.resource, resource)), None)


def kind_of(product: str) -> str:
    """Return the kind of a product as a label names it, as ``h100`` for ``NVIDIA-H100-80GB-HBM3``.

    A slice of a device keeps its profile: ``NVIDIA-A100-SXM4-40GB-MIG-1g.5gb`` is ``a100-1g.5gb``.
    """
    suffix = _SUFFIX.search(product)
    words = re.split(r"[^a-z0-9]+", (product[: suffix.start()] if suffix else product).lower())
    named = [word for word in words if word and word not in _MAKERS]
    kind = next((word for word in named if any(c.isdigit() for c in word)), "-".join(named))
    if suffix and suffix["slice"]:
        return f"{kind}-{suffix['slice'].lower()}"
    return kind


def _kind(vendor: Vendor, resource: str, product: str) -> str:
    profile = resource.partition("/mig-")[2]
    if not product:
        base = _ascend(resource) if vendor.prefix else vendor.kind
    elif vendor.kind == "tpu":
        base = _tpu(product)
    else:
        base = kind_of(product) or vendor.kind
    if vendor.prefix and not base.startswith(vendor.prefix):
        base = f"{vendor.prefix}{base}"
    return f"{base}-{profile}" if profile else base


def _ascend(resource: str) -> str:
    """A resource itself may name the chip: ``huawei.com/Ascend910B3``."""
    return resource.rpartition("/")[2].lower()


def _tpu(product: str) -> str:
    """The name of a TPU among its sellers' names for slices: ``tpu-v5-lite-podslice`` is v5e."""
    match = _TPU.fullmatch(product)
    if match is None:
        return product.lower()
    return f"tpu-{match[1]}{'e' if match[2] else ''}"


def _memory_bytes(vendor: Vendor, resource: str, labels: Mapping[str, str]) -> int:
    profile = resource.partition("/mig-")[2]
    names = (f"nvidia.com/mig-{profile}.memory",) if profile else vendor.memory
    text = _first(labels, names)
    match = re.fullmatch(r"(\d{1,12})(?:([MG])i?B?)?", text)
    if match is None:
        return 0
    unit = {"M": _MIB, "G": _GIB, None: vendor.memory_unit}[match[2]]
    return int(match[1]) * unit


def _is_shared(resource: str, labels: Mapping[str, str]) -> bool:
    if not resource.startswith("nvidia.com/"):
        return False
    strategy = labels.get("nvidia.com/gpu.sharing-strategy", "none")
    replicas = labels.get("nvidia.com/gpu.replicas", "1")
    many = replicas.isdecimal() and int(replicas) > 1
    return resource.endswith(".shared") or strategy != "none" or many


def _first(labels: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((labels[name] for name in names if labels.get(name)), "")
