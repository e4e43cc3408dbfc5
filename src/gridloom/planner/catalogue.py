"""Accelerators as their makers describe them, and the names that people give them.

Rates are dense. Sources: the makers' data sheets as collected in stas00/ml-engineering
(compute/accelerator and network, CC BY-SA 4.0), the facts of TPUs in jax-ml/scaling-book, the
links of A800, H800 and H20 in aliyun/SimAI. Where a table rounds memory bandwidth, the maker's own
figure stands. Devices of one family share calibrated constants.
"""

import re

from gridloom.base.errors import InputError, Problem
from gridloom.planner.hardware import AcceleratorType

_T, _G = 1e12, 1e9

# name, title, family, TF32, 16-bit, 8-bit (TFLOP/s), memory GB, HBM TB/s, node,
# scale-up GB/s, network GB/s, host GB/s, watts, in-switch reduction, multiprocessors
_ROWS = (
    ("v100", "V100-SXM2-32", "v100", 15.7, 125, 0, 32, 0.9, 8, 150, 12.5, 12, 300, False, 80),
    (
        "v100-sxm3",
        "V100-SXM3-32",
        "v100",
        15.7,
        130,
        0,
        32,
        0.98,
        16,
        150,
        12.5,
        12,
        350,
        False,
        80,
    ),
    ("a100-40", "A100-SXM-40", "a100", 156, 312, 0, 40, 1.555, 8, 300, 25, 25, 400, False, 108),
    ("a100", "A100-SXM-80", "a100", 156, 312, 0, 80, 2.039, 8, 300, 25, 25, 400, False, 108),
    ("a100-pcie", "A100-PCIe-80", "a100", 156, 312, 0, 80, 1.935, 2, 31, 25, 25, 300, False, 108),
    ("a800", "A800-SXM-80", "a100", 156, 312, 0, 80, 2.039, 8, 160, 25, 25, 400, False, 108),
    ("h100", "H100-SXM-80", "h100", 494.5, 989, 1979, 80, 3.35, 8, 450, 50, 55, 700, True, 132),
    (
        "h100-96",
        "H100-96GB-HBM2e",
        "h100",
        494.5,
        989,
        1979,
        96,
        2.4,
        8,
        450,
        50,
        55,
        500,
        True,
        132,
    ),
    ("h100-pcie", "H100-PCIe-80", "h100", 378, 756, 1513, 80, 2.0, 2, 63, 50, 55, 350, False, 114),
    ("h800", "H800-SXM-80", "h100", 494.5, 989, 1979, 80, 3.35, 8, 165, 50, 51, 700, True, 132),
    ("h20", "H20", "h100", 74, 148, 296, 96, 4.0, 8, 450, 50, 51, 400, True, 78),
    ("h200", "H200-SXM-141", "h100", 494.5, 989, 1979, 141, 4.8, 8, 450, 50, 55, 700, True, 132),
    ("gh200", "GH200-96", "h100", 494.5, 989, 1979, 96, 4.0, 1, 450, 50, 400, 900, False, 132),
    ("b200", "B200-180", "b200", 1125, 2250, 4500, 180, 8.0, 8, 900, 50, 55, 1000, True, 148),
    (
        "b200-capped",
        "B200-180 (power limited)",
        "b200",
        1125,
        2250,
        4500,
        180,
        8.0,
        8,
        900,
        50,
        55,
        750,
        True,
        148,
    ),
    ("b300", "B300-288", "b200", 1125, 2250, 4500, 288, 8.0, 8, 900, 100, 55, 1100, True, 160),
    ("gb200", "GB200-186", "b200", 1250, 2500, 5000, 186, 8.0, 72, 900, 50, 400, 1200, True, 148),
    ("gb300", "GB300-288", "b200", 1250, 2500, 5000, 288, 8.0, 72, 900, 100, 400, 1400, True, 160),
    ("l40s", "L40S-48", "ada", 183, 362, 733, 48, 0.864, 1, 31, 25, 25, 350, False, 142),
    ("mi250x", "MI250X-128", "mi200", 47.9, 383, 0, 128, 3.28, 8, 350, 25, 31, 560, False, 208),
    ("mi300x", "MI300X-192", "mi300", 653.7, 1307, 2614, 192, 5.3, 8, 448, 50, 55, 750, False, 304),
    (
        "mi325x",
        "MI325X-256",
        "mi300",
        653.7,
        1307,
        2614,
        256,
        6.0,
        8,
        448,
        50,
        55,
        1000,
        False,
        304,
    ),
    ("mi355x", "MI355X-288", "mi355", 1250, 2500, 5000, 288, 8.0, 8, 535, 50, 55, 1400, False, 256),
    ("gaudi2", "Gaudi2-96", "gaudi", 432, 432, 865, 96, 2.46, 8, 300, 37.5, 25, 600, False, 0),
    ("gaudi3", "Gaudi3-128", "gaudi", 459, 1677, 1677, 128, 3.7, 8, 600, 75, 50, 900, False, 0),
    ("tpu-v3", "TPU v3", "tpu", 140, 140, 0, 32, 0.9, 1024, 200, 6.25, 12, 220, False, 0),
    ("tpu-v4", "TPU v4", "tpu", 275, 275, 0, 32, 1.2, 4096, 135, 6.25, 12, 200, False, 0),
    ("tpu-v5e", "TPU v5e", "tpu", 197, 197, 0, 16, 0.82, 256, 90, 6.25, 12, 200, False, 0),
    ("tpu-v5p", "TPU v5p", "tpu", 459, 459, 0, 95, 2.76, 8960, 270, 6.25, 12, 350, False, 0),
    ("tpu-v6e", "TPU v6e", "tpu", 918, 918, 0, 32, 1.6, 256, 180, 12.5, 12, 300, False, 0),
    (
        "trainium2",
        "Trainium2-96",
        "trainium",
        667,
        667,
        1299,
        96,
        2.9,
        16,
        320,
        25,
        25,
        500,
        False,
        0,
    ),
    (
        "ascend-910c",
        "Ascend 910C",
        "ascend",
        390,
        780,
        0,
        128,
        3.2,
        384,
        196,
        25,
        25,
        600,
        False,
        0,
    ),
)

# Watts over those of the variant at full speed.
_POWER_CAPS = {"h100-96": 500 / 700, "b200-capped": 750 / 1000}

ACCELERATORS: dict[str, AcceleratorType] = {
    row[0]: AcceleratorType(
        name=row[0],
        title=row[1],
        family=row[2],
        flops_32=row[3] * _T,
        flops_16=row[4] * _T,
        flops_8=row[5] * _T,
        memory_bytes=row[6] * _G,
        hbm_bytes_per_s=row[7] * _T,
        node=row[8],
        scaleup_bytes_per_s=row[9] * _G,
        network_bytes_per_s=row[10] * _G,
        host_bytes_per_s=row[11] * _G,
        power_w=row[12],
        sharp=row[13],
        units=row[14],
        power_cap=_POWER_CAPS.get(row[0], 1.0),
    )
    for row in _ROWS
}
"""By name."""

# First match wins: what a label must contain, lower case, and the accelerator that it means.
_LABELS = (
    (r"\bv100.*(dgx-?2|sxm3)", "v100-sxm3"),
    (r"\bv100", "v100"),
    (r"\ba800", "a800"),
    (r"\ba100.*pcie", "a100-pcie"),
    (r"\ba100.*(-|\b)40\b", "a100-40"),
    (r"\ba100", "a100"),
    (r"\bh100.*96", "h100-96"),
    (r"\bh100.*pcie", "h100-pcie"),
    (r"\bh100", "h100"),
    (r"\bh800", "h800"),
    (r"\bh200", "h200"),
    (r"\bh20\b", "h20"),
    (r"\bgh200", "gh200"),
    (r"\bgb300", "gb300"),
    (r"\bgb200", "gb200"),
    (r"\bb300", "b300"),
    (r"\bb200.*power", "b200-capped"),
    (r"\bb200", "b200"),
    (r"\bl40s", "l40s"),
    (r"\bmi355", "mi355x"),
    (r"\bmi325", "mi325x"),
    (r"\bmi300", "mi300x"),
    (r"\bmi250", "mi250x"),
    (r"gaudi ?3", "gaudi3"),
    (r"gaudi ?2", "gaudi2"),
    (r"tpu ?v6e|trillium", "tpu-v6e"),
    (r"tpu ?v5p", "tpu-v5p"),
    (r"tpu ?v5e", "tpu-v5e"),
    (r"tpu ?v4", "tpu-v4"),
    (r"tpu ?v3", "tpu-v3"),
    (r"trainium ?2|trn2", "trainium2"),
    (r"910c", "ascend-910c"),
)


def accelerator(label: str) -> AcceleratorType:
    """Return the accelerator that ``label`` names: one of the catalogue, or a maker's title.

    Raises:
        InputError: None is meant.
    """
    found = find_accelerator(label)
    if found is None:
        raise InputError(
            [
                Problem(
                    message=f"no accelerator is called {label!r}",
                    remedy="write one of " + ", ".join(sorted(ACCELERATORS)),
                )
            ]
        )
    return found


def find_accelerator(label: str) -> AcceleratorType | None:
    """Return the accelerator that ``label`` names, or nothing."""
    folded = label.lower().strip().replace("_", "-")
    if folded in ACCELERATORS:
        return ACCELERATORS[folded]
    for pattern, name in _LABELS:
        if re.search(pattern, folded):
            return ACCELERATORS[name]
    return None
