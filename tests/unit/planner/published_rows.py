"""A row of a table of measured runs, as the tests change it."""

from gridloom.planner.published import Run, Unexpressed, read_run

ROW = {
    "id": "row-1",
    "source": "a paper",
    "model": "GPT 7.5B",
    "params_B": "7.5",
    "layers": "36",
    "hidden": "4096",
    "ffn": "16384",
    "heads": "32",
    "kv_heads": "",
    "vocab": "51200",
    "seq_len": "2048",
    "moe(experts,topk)": "",
    "gpu": "A100-SXM-80",
    "n_gpus": "128",
    "nodes": "16",
    "tp": "4",
    "pp": "2",
    "vpp": "",
    "dp": "16",
    "cp": "1",
    "ep": "1",
    "zero": "0",
    "micro_batch": "4",
    "global_batch": "512",
    "precision": "bf16",
    "act_ckpt": "none",
    "flash_attention": "y",
    "interconnect": "",
    "measured_TFLOPs_per_gpu": "",
    "measured_step_time_s": "3.5",
    "tokens_per_s_per_gpu": "",
    "peak_memory_GB": "",
    "notes": "",
    "flops_convention": "",
    "group": "table 1",
    "completeness": "A",
}


def row(**cells: str) -> dict[str, str]:
    renamed = {"moe": "moe(experts,topk)"}
    return ROW | {renamed.get(name, name): value for name, value in cells.items()}


def run(**cells: str) -> Run:
    found = read_run(row(**cells))
    assert isinstance(found, Run), found
    return found


def refused(**cells: str) -> str:
    found = read_run(row(**cells))
    assert isinstance(found, Unexpressed)
    return found.reason
