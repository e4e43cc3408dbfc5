"""A row of a table of measured runs as a case: what is stated, what is missing and what is assumed.

The columns are those of the published tables: names of the degrees, sizes of the model, the label
of the accelerator, the layout, and what was measured. A row that cannot be expressed says why.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gridloom.model.parallel import ParallelPlan
from gridloom.model.transformer import Experts, Transformer
from gridloom.planner.catalogue import find_accelerator
from gridloom.planner.hardware import AcceleratorType, Fabric
from gridloom.planner.models.parameters import count_parameters
from gridloom.planner.models.presets import matching

Row = Mapping[str, str]
"""A line of the table by column; a missing cell is an empty string."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One measured run.

    Attributes:
        id: Of the row.
        group: Rows that were measured together: one source, one cluster, one program.
        model: Shape of the model.
        plan: How it was cut.
        accelerator: On which devices.
        fabric: And which network.
        devices: How many.
        sequence: Tokens a sequence.
        global_batch: Sequences a training step.
        grade: ``A`` every input is there, ``B`` one or two are missing, ``C`` more are, ``OOM``.
        assumed: What was not stated and how it was filled in.
        step_s: Measured seconds of a training step; 0 when not measured.
        memory_bytes: Measured peak memory of a device; 0 when not measured.
    """

    id: str
    group: str
    label: str
    model: Transformer
    plan: ParallelPlan
    accelerator: AcceleratorType
    fabric: Fabric
    devices: int
    sequence: int
    global_batch: int
    grade: str
    assumed: tuple[str, ...] = ()
    step_s: float = 0.0
    memory_bytes: float = 0.0


@dataclass(frozen=True)
class Unexpressed:
    """A row that is no case.

    Attributes:
        id: Of the row.
        reason: Why not.
    """

    id: str
    reason: str


@dataclass
class _Reader:
    """Cells of one row as values, and what had to be assumed."""

    row: Row
    assumed: list[str] = field(default_factory=list)

    def text(self, name: str) -> str:
        return (self.row.get(name) or "").strip()

    def number(self, name: str) -> float:
        """Return the first number in the cell; 0 when there is none."""
        found = re.search(r"\d+(\.\d+)?(e[+-]?\d+)?", self.text(name))
        return float(found.group()) if found else 0.0

    def count(self, name: str) -> int:
        return int(self.number(name))

    def assume(self, what: str, value: Any) -> Any:
        self.assumed.append(f"{what}={value}")
        return value


def read_run(row: Row) -> Run | Unexpressed:
    """Return the case that ``row`` describes, or why it describes none."""
    cells = _Reader(row)
    missing = _missing(cells)
    if missing:
        return Unexpressed(cells.text("id"), missing)
    accelerator = find_accelerator(cells.text("gpu"))
    assert accelerator is not None
    model = _model(cells)
    devices = cells.count("n_gpus")
    plan, batch = _plan(cells, devices)
    if plan.world_size != devices:
        return Unexpressed(
            cells.text("id"), f"the degrees make {plan.world_size} ranks, not {devices}"
        )
    return Run(
        id=cells.text("id"),
        group=cells.text("group") or cells.text("source"),
        label=cells.text("model"),
        model=model,
        plan=plan,
        accelerator=accelerator,
        fabric=_fabric(cells, accelerator),
        devices=devices,
        sequence=cells.count("seq_len"),
        global_batch=batch,
        grade=cells.text("completeness").split(":")[0] or "A",
        assumed=tuple(cells.assumed),
        step_s=_step_s(cells, model, devices, batch),
        memory_bytes=cells.number("peak_memory_GB") * 1e9,
    )


def _missing(cells: _Reader) -> str:
    """Return which inputs are missing that nothing can stand in for."""
    needed = ("layers", "hidden", "seq_len", "n_gpus")
    absent = [name for name in needed if not cells.count(name)]
    if absent:
        return "not stated: " + ", ".join(absent)
    if find_accelerator(cells.text("gpu")) is None:
        return f"unknown accelerator {cells.text('gpu')!r}"
    return ""


# --- the model


def _model(cells: _Reader) -> Transformer:
    """Return the preset of these sizes, or a transformer whose count comes closest to the row's."""
    layers, hidden = cells.count("layers"), cells.count("hidden")
    heads = cells.count("heads") or cells.assume("heads", max(1, hidden // 128))
    found = matching(
        layers,
        hidden,
        heads,
        kv_heads=cells.count("kv_heads") or heads,
        vocabulary=cells.count("vocab"),
    )
    if found is not None and (found.experts is not None) == bool(cells.text("moe(experts,topk)")):
        return found
    return _nearest(cells, layers, hidden, heads)


def _nearest(cells: _Reader, layers: int, hidden: int, heads: int) -> Transformer:
    ffn = cells.count("ffn") or cells.assume("ffn", 4 * hidden)
    shapes = [
        Transformer(
            name=cells.text("model"),
            layers=layers,
            hidden=hidden,
            ffn=ffn,
            heads=heads,
            kv_heads=cells.count("kv_heads") or heads,
            vocabulary=cells.count("vocab") or 51200,
            gated=gated,
            tied=tied,
            experts=_experts(cells, ffn),
        )
        for gated, tied in ((False, True), (True, False), (False, False), (True, True))
    ]
    stated = cells.number("params_B") * 1e9
    if not stated or cells.text("moe(experts,topk)"):
        return shapes[1] if cells.text("moe(experts,topk)") else shapes[0]
    return min(shapes, key=lambda shape: abs(count_parameters(shape).total - stated))


def _experts(cells: _Reader, ffn: int) -> Experts | None:
    numbers = re.findall(r"\d+", cells.text("moe(experts,topk)"))
    if len(numbers) < 2:
        return None
    stated = re.search(r"moe_ffn (\d+)", cells.text("arch_source"))
    width = int(stated.group(1)) if stated else ffn
    return Experts(count=int(numbers[0]), per_token=int(numbers[1]), ffn=width)


# --- the plan


def _plan(cells: _Reader, devices: int) -> tuple[ParallelPlan, int]:
    tensor, pipeline = cells.count("tp") or 1, cells.count("pp") or 1
    context = cells.count("cp") or 1
    data = cells.count("dp") or devices // (tensor * pipeline * context)
    batch = cells.count("global_batch")
    micro = cells.count("micro_batch")
    if not micro:
        micro = cells.assume("micro_batch", _micro_batch(batch, data, pipeline))
    if not batch:
        batch = cells.assume("global_batch", micro * data)
    chunks = cells.count("vpp") or _virtual_stages(cells, pipeline)
    precision = _precision(cells)
    recompute = _recompute(cells)
    zero = cells.text("zero")
    group = re.search(r"shard group (\d+)", zero) or re.search(r"FSDP=(\d+)", cells.text("notes"))
    recompute_layers = _recompute_layers(cells, pipeline)
    stage = int(cells.number("zero"))
    plan = ParallelPlan(
        tensor=tensor,
        pipeline=pipeline,
        context=context,
        data=data,
        expert=cells.count("ep") or 1,
        sequence_parallel=_sequence_parallel(cells, tensor, recompute),
        schedule="interleaved" if chunks > 1 else "1f1b",
        virtual_stages=chunks,
        zero=stage,  # type: ignore[arg-type]
        shard=min(int(group.group(1)), data * context) if group else 0,
        gather_unit="tensor" if "ZeRO-3" in cells.text("model") else "layer",
        micro_batch=micro,
        recompute="full" if recompute_layers else recompute,  # type: ignore[arg-type]
        recompute_layers=recompute_layers,
        native_attention=_native_attention(cells),
        fused=_fused(cells),
        blocking_launches="CUDA_LAUNCH_BLOCKING" in cells.text("notes"),
        flash_attention=cells.text("flash_attention").startswith("y") or precision == "fp8",
        precision=precision,  # type: ignore[arg-type]
        overlap_gradients=stage > 0,
        overlap_parameters=stage > 0,
        overlap_tensor=_overlap_tensor(cells),
    )
    return plan, batch


def _micro_batch(batch: int, data: int, pipeline: int) -> int:
    """Return 1 in a pipeline, which lives on many micro-batches; else up to 4."""
    share = batch // data if batch else 1
    if pipeline > 1:
        return 1
    return max(size for size in (1, 2, 4) if size == 1 or (share and share % size == 0))


def _virtual_stages(cells: _Reader, pipeline: int) -> int:
    """Return 1 unless the row says that an interleaved schedule was used."""
    if pipeline > 2 and "interleaved" in cells.text("notes"):
        per_stage = cells.count("layers") // pipeline
        chunks = max((v for v in (1, 2, 3) if per_stage % v == 0), default=1)
        return int(cells.assume("vpp", chunks))
    return 1


def _precision(cells: _Reader) -> str:
    text = cells.text("precision").lower()
    if not text:
        known = find_accelerator(cells.text("gpu"))
        return str(cells.assume("precision", "fp8" if known and known.flops_8 else "bf16"))
    if "rowwise" in text:
        return "fp8_rowwise"
    for name, means in (("fp8", "fp8"), ("nvfp4", "fp8"), ("fp4", "fp8"), ("fp16", "fp16")):
        if name in text:
            return means
    return "fp32" if "fp32" in text and "bf16" not in text else "bf16"


def _recompute(cells: _Reader) -> str:
    text = cells.text("act_ckpt")
    if not text:
        return str(cells.assume("recompute", "none"))
    return next((kind for kind in ("none", "selective", "full") if text.startswith(kind)), "none")


def _recompute_layers(cells: _Reader, pipeline: int) -> int:
    """Return half the layers of a stage when half of a layer, or each second one, is redone."""
    notes = cells.text("notes")
    if not cells.text("act_ckpt").startswith("selective"):
        return 0
    if "per-op SAC" in notes or "every 2nd layer" in notes or "torchtitan" in cells.text("model"):
        return max(1, cells.count("layers") // pipeline // 2)
    return 0


def _fused(cells: _Reader) -> bool:
    """Return whether element-wise kernels are fused: by a compiler or by Transformer Engine."""
    said = " ".join(cells.text(name) for name in ("notes", "precision", "source", "model", "gpu"))
    if re.search(r"eager|nocompile", said):
        return False
    return re.search(r"compile|TP|NeMo|JAX|TPU|Intern|flash", said) is not None


def _overlap_tensor(cells: _Reader) -> bool:
    notes = cells.text("notes") + cells.text("source")
    return "async TP" in notes or "NeMo" in notes or "tpu" in cells.text("gpu").lower()


def _native_attention(cells: _Reader) -> bool:
    """Return whether attention's kernel was made for the device: PyTorch's own is older."""
    known = find_accelerator(cells.text("gpu"))
    if known is None or known.family in {"v100", "a100", "tpu"}:
        return True
    program = cells.text("notes") + cells.text("source")
    return re.search(r"NeMo|JAX|Megatron|Transformer Engine", program) is not None


def _sequence_parallel(cells: _Reader, tensor: int, recompute: str) -> bool:
    """Return whether tensor ranks shared the tokens: unusual before 2022, usual since."""
    if tensor == 1:
        return False
    notes = cells.text("notes")
    if "sequence parallelism" in notes:
        return "no sequence parallelism" not in notes
    return cells.text("precision") != "fp16" and recompute != "full"


# --- the machine


def _fabric(cells: _Reader, accelerator: AcceleratorType) -> Fabric:
    devices, nodes = cells.count("n_gpus"), cells.count("nodes")
    node = -(-devices // nodes) if nodes > 1 and accelerator.family != "tpu" else 0
    if accelerator.node > 16:
        node = 0
    text = cells.text("interconnect") + " " + cells.text("notes")
    return Fabric(node=node, network_bytes_per_s=_network_bytes_per_s(text, node or 8))


def _network_bytes_per_s(text: str, node: int) -> float:
    """Return the bandwidth of one device to the network, from the words of the table."""
    several = re.search(r"(\d+)x [\w-]* ?(\d+) Gb(?:/s)?[\w ]* per node", text)
    if several:
        return int(several.group(1)) * int(several.group(2)) / node * 1e9 / 8
    whole = re.search(r"(\d+) Gb/s (?:per node|inter-node)", text)
    if whole:
        return int(whole.group(1)) / node * 1e9 / 8
    each = re.search(r"(\d+) Gb/s (?:\w+ )?per GPU|HDR(200)|NDR(400)|8x(\d+) Gb/s", text)
    if each:
        return next(int(group) for group in each.groups() if group) * 1e9 / 8
    return 0.0


# --- what was measured


def _step_s(cells: _Reader, model: Transformer, devices: int, batch: int) -> float:
    stated = cells.number("measured_step_time_s")
    if stated:
        return stated
    tokens = batch * cells.count("seq_len")
    rate = cells.number("tokens_per_s_per_gpu")
    if rate:
        return tokens / (rate * devices)
    flops_rate = cells.number("measured_TFLOPs_per_gpu")
    if flops_rate:
        return tokens * flops_per_token(model, cells.count("seq_len")) / (flops_rate * 1e12 * devices)
    return 0.0


def flops_per_token(model: Transformer, sequence: int) -> float:
    """Return ``6 P + 12 layers hidden sequence``: model flops without causal discount."""
    return 6.0 * count_parameters(model).total + 12.0 * model.layers * model.hidden * sequence
