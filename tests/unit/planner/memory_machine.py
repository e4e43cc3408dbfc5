"""The machine of the tests of memory: only its memory matters."""

from gridloom.planner.cases import MachineColumns

MACHINE = MachineColumns(
    flops_32=1.0,
    flops_16=1.0,
    flops_8=1.0,
    memory_bytes=80e9,
    hbm_bytes_per_s=1.0,
    node=8,
    scaleup_bytes_per_s=1.0,
    network_bytes_per_s=1.0,
    leaf=0,
    spine_share=1.0,
    host_bytes_per_s=1.0,
    sharp=0,
    units=0,
    sites=1,
    wan_bytes_per_s=0.0,
    wan_latency_s=0.0,
)
