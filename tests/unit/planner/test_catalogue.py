"""The catalogue of accelerators: what people call them, and whether the figures can be."""

import pytest

from gridloom.base.errors import InputError
from gridloom.planner.catalogue import ACCELERATORS, accelerator, find_accelerator


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("h100", "h100"),
        ("  H100 ", "h100"),
        ("A100_PCIE", "a100-pcie"),
        ("tpu_v5e", "tpu-v5e"),
        ("V100-SXM2-32", "v100"),
        ("V100 (DGX-2)", "v100-sxm3"),
        ("V100-SXM3-32", "v100-sxm3"),
        ("A800-SXM-80", "a800"),
        ("A100 (NVLink DGX-class node)", "a100"),
        ("A100-SXM-80", "a100"),
        ("A100-SXM-40", "a100-40"),
        ("A100 40 GB", "a100-40"),
        ("A100-PCIe-80", "a100-pcie"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("H100-PCIe", "h100-pcie"),
        ("H100 96GB HBM2e", "h100-96"),
        ("H800", "h800"),
        ("H200-SXM-141", "h200"),
        ("H20-96", "h20"),
        ("GH200", "gh200"),
        ("GB200 NVL72", "gb200"),
        ("GB300", "gb300"),
        ("B300", "b300"),
        ("B200-180", "b200"),
        ("B200 (power limited)", "b200-capped"),
        ("L40S", "l40s"),
        ("MI300X", "mi300x"),
        ("AMD MI325X", "mi325x"),
        ("MI355X", "mi355x"),
        ("MI250X", "mi250x"),
        ("Gaudi2", "gaudi2"),
        ("Gaudi 3", "gaudi3"),
        ("TPU v6e", "tpu-v6e"),
        ("Trillium", "tpu-v6e"),
        ("TPU v5p-512", "tpu-v5p"),
        ("TPUv5e", "tpu-v5e"),
        ("TPU v4", "tpu-v4"),
        ("TPU v3", "tpu-v3"),
        ("Trainium2", "trainium2"),
        ("Ascend 910C", "ascend-910c"),
    ],
)
def test_labels(label: str, name: str) -> None:
    assert accelerator(label) is ACCELERATORS[name]


@pytest.mark.parametrize("label", ["", "abacus", "xh100", "K80", "P100"])
def test_what_nobody_makes_is_refused_with_the_names_there_are(label: str) -> None:
    assert find_accelerator(label) is None
    with pytest.raises(InputError) as caught:
        accelerator(label)
    (problem,) = caught.value.problems
    assert repr(label) in problem.message
    assert "h100" in problem.remedy
    assert "v100" in problem.remedy


@pytest.mark.parametrize("name", sorted(ACCELERATORS))
def test_a_title_means_its_accelerator(name: str) -> None:
    assert find_accelerator(ACCELERATORS[name].title) is ACCELERATORS[name]


@pytest.mark.parametrize("name", sorted(ACCELERATORS))
def test_figures_are_possible(name: str) -> None:
    one = ACCELERATORS[name]
    assert one.name == name
    assert 0 < one.flops_32 <= one.flops_16
    # An 8-bit product, where there is one, is at most twice as fast, but for rounding.
    assert one.flops_8 == 0 or one.flops_16 <= one.flops_8 <= 2.03 * one.flops_16
    assert 16e9 <= one.memory_bytes <= 300e9
    assert 0.7e12 <= one.hbm_bytes_per_s <= 10e12
    assert one.node >= 1
    assert one.scaleup_bytes_per_s >= one.network_bytes_per_s
    assert one.power_w > 0
    assert 0 < one.power_cap <= 1
    assert one.units >= 0


def test_names_and_titles_are_unique() -> None:
    titles = [one.title for one in ACCELERATORS.values()]
    assert len(set(titles)) == len(titles) == len(ACCELERATORS)


def test_capped_devices_are_slower_variants_of_their_own() -> None:
    assert ACCELERATORS["h100-96"].power_cap == pytest.approx(500 / 700)
    assert ACCELERATORS["b200-capped"].power_cap == 0.75
    assert ACCELERATORS["b200"].power_cap == 1.0
    assert ACCELERATORS["b200-capped"].family == ACCELERATORS["b200"].family
