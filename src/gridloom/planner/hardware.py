"""What a device can do at its limit, and the levels of the network between devices."""

import msgspec

from gridloom.planner.cases import MachineColumns
from gridloom.planner.memory_constants import CONTEXT_BYTES, GROUP_BYTES


class AcceleratorType(msgspec.Struct, frozen=True, kw_only=True):
    """Data sheet of one kind of device: dense peak rates, no sparsity.

    Attributes:
        name: As people write it in a grid file, as ``h100``.
        title: The maker's name.
        family: Devices of one family share calibrated constants, as ``a100``.
        flops_32: Peak flop/s of fp32 matrix products (TF32 where the device has it).
        flops_16: Peak flop/s of bf16 and fp16 matrix products.
        flops_8: Peak flop/s of fp8 matrix products; 0 without them.
        memory_bytes: Of the device.
        hbm_bytes_per_s: Bandwidth of that memory.
        node: Devices of one scale-up domain in the maker's usual machine.
        scaleup_bytes_per_s: One device to its scale-up domain, one direction.
        network_bytes_per_s: One device to the network of the maker's usual machine.
        host_bytes_per_s: One device to the host's memory, one direction.
        power_w: Thermal design power.
        sharp: Switches of the scale-up domain reduce (NVLink SHARP).
        power_cap: Power that the device may draw over that of its full-speed variant.
        units: Multiprocessors that share the tiles of a product; 0 when tiles do not matter.
    """

    name: str
    title: str
    family: str
    flops_32: float
    flops_16: float
    flops_8: float = 0.0
    memory_bytes: float
    hbm_bytes_per_s: float
    node: int = 8
    scaleup_bytes_per_s: float
    network_bytes_per_s: float = 50e9
    host_bytes_per_s: float = 25e9
    power_w: float = 0.0
    sharp: bool = False
    power_cap: float = 1.0
    units: int = 0


class Fabric(msgspec.Struct, frozen=True, kw_only=True):
    """The network that a job finds; zeros stand for the maker's usual machine.

    Attributes:
        node: Devices of one scale-up domain.
        scaleup_bytes_per_s: One device to its scale-up domain.
        network_bytes_per_s: One device to the network between scale-up domains.
        leaf: Devices under one leaf switch; 0 when unknown or never oversubscribed.
        spine_share: Share of the network's bandwidth that remains above a leaf.
        sites: Sites over which copies of the model are spread.
        wan_bytes_per_s: Of one site to another.
        wan_latency_s: One way.
    """

    node: int = 0
    scaleup_bytes_per_s: float = 0.0
    network_bytes_per_s: float = 0.0
    leaf: int = 0
    spine_share: float = 1.0
    sites: int = 1
    wan_bytes_per_s: float = 0.0
    wan_latency_s: float = 0.0


def machine_columns(accelerator: AcceleratorType, fabric: Fabric) -> MachineColumns:
    """Return the machine in numbers.

    A cap on power lowers the clock with its cube root, for power grows with frequency and with the
    square of a voltage that grows with it.
    """
    clock = accelerator.power_cap ** (1.0 / 3.0)
    return MachineColumns(
        flops_32=accelerator.flops_32 * clock,
        flops_16=accelerator.flops_16 * clock,
        flops_8=(accelerator.flops_8 or accelerator.flops_16) * clock,
        memory_bytes=accelerator.memory_bytes,
        hbm_bytes_per_s=accelerator.hbm_bytes_per_s,
        node=fabric.node or accelerator.node,
        scaleup_bytes_per_s=fabric.scaleup_bytes_per_s or accelerator.scaleup_bytes_per_s,
        network_bytes_per_s=fabric.network_bytes_per_s or accelerator.network_bytes_per_s,
        leaf=fabric.leaf,
        spine_share=fabric.spine_share,
        host_bytes_per_s=accelerator.host_bytes_per_s,
        sharp=int(accelerator.sharp),
        units=accelerator.units,
        sites=fabric.sites,
        wan_bytes_per_s=fabric.wan_bytes_per_s,
        wan_latency_s=fabric.wan_latency_s,
        # A TPU has no context of a driver, and its collectives need no buffers of their own.
        context_bytes=0.0 if accelerator.family == "tpu" else CONTEXT_BYTES,
        group_bytes=0.0 if accelerator.family == "tpu" else GROUP_BYTES,
    )
