"""A row of a table of measured runs as a case: what is stated, what is missing and what is assumed.

The columns are those of the published tables: names of the degrees, sizes of the model, the label
of the accelerator, the layout, and what was measured. A row that cannot be expressed says why.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import structs

from gridloom.model.parallel import ParallelPlan
from gridloom.model.transformer import Experts, Transformer
from gridloom.planner.cases import Cases, model_columns, plan_columns
from gridloom.planner.catalogue import find_accelerator
from gridloom.planner.flops import flops_per_token
from gridloom.planner.hardware import AcceleratorType, Fabric, machine_columns
from gridloom.planner.memory import Counter, peak_bytes
from gridloom.planner.models.parameters import count_parameters
from gridloom.planner.models.presets import find_preset, matching
from gridloom.planner.published_fabrics import fabric_of
from gridloom.planner.published_programs import Program, program_of

Row = Mapping[str, str]
"""A line of the table by column; a missing cell is an empty string."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One measured run.

    Attributes:
        id: Of the row.
        group: Rows that were measured together: one source, one cluster, one program.
        label: The model as the row names it.
        program: That trained it.
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
        counter: What was counted.
    """

    id: str
    group: str
    label: str
    program: str
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
    counter: Counter = "reserved"

    @property
    def guessed(self) -> bool:
        """Whether an input that decides much is a guess."""
        return any(text.startswith(("micro_batch", "virtual_stages")) for text in self.assumed)


@dataclass(frozen=True)
class Unexpressed:
    """A row that is no case.

    Attributes:
        id: Of the row.
        grade: As in `Run`.
        reason: Why not.
    """

    id: str
    grade: str
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
        text = re.sub(r"(?<=\d),(?=\d{3}\b)", "", self.text(name))
        found = re.search(r"(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?", text)
        return float(found.group()) if found else 0.0

    def count(self, name: str) -> int:
        return int(self.number(name))

    def assume(self, what: str, value: Any) -> Any:
        self.assumed.append(f"{what}={value}")
        return value

    @property
    def words(self) -> str:
        """Everything that the row says in words."""
        names = ("source", "notes", "model", "gpu", "precision", "group")
        return " ".join(self.text(name) for name in names)


def read_run(row: Row, assumed: Sequence[str] = ()) -> Run | Unexpressed:
    """Return the case that ``row`` describes, or why it describes none.

    Args:
        row: The cells of one line.
        assumed: What was filled in before, as the answer shall tell.
    """
    cells = _Reader(row, list(assumed))
    grade = cells.text("completeness").split(":")[0] or "A"
    if re.search(
        r"OOM (by|rank)|^OOM$", cells.text("step_time_or_throughput") or cells.text("value")
    ):
        grade = "OOM"
    reason = _inexpressible(cells)
    accelerator = find_accelerator(cells.text("gpu"))
    if reason or accelerator is None:
        return Unexpressed(cells.text("id"), grade, reason)
    model = _model(cells)
    program = program_of(cells.words)
    devices = cells.count("n_gpus")
    plan, batch = _plan(cells, devices, program, model.layers)
    if plan.world_size != devices:
        reason = f"the degrees make {plan.world_size} ranks, not {devices}"
        return Unexpressed(cells.text("id"), grade, reason)
    run = Run(
        id=cells.text("id"),
        group=cells.text("group") or cells.text("source"),
        label=cells.text("model"),
        program=program.name,
        model=model,
        plan=plan,
        accelerator=accelerator,
        fabric=_fabric(cells, accelerator),
        devices=devices,
        sequence=cells.count("seq_len"),
        global_batch=batch,
        grade=grade,
        assumed=tuple(cells.assumed),
        step_s=_step_s(cells, model, devices, batch),
        memory_bytes=0.0 if grade == "OOM" else _memory_bytes(cells),
        counter=_counter(cells),
    )
    return run if cells.text("flash_attention") else _settled_attention(run)


def case_of(run: Run) -> Cases:
    """Return ``run`` in numbers."""
    return Cases(
        model=model_columns(run.model),
        plan=plan_columns(run.plan),
        machine=machine_columns(run.accelerator, run.fabric),
        sequence=run.sequence,
        global_batch=run.global_batch,
    )


def _settled_attention(run: Run) -> Run:
    """Return ``run`` with attention's core recomputed if it cannot fit else, attention unstated."""
    if run.plan.flash_attention or run.plan.recompute != "none" or run.grade == "OOM":
        return run
    if peak_bytes(case_of(run)) <= run.accelerator.memory_bytes:
        return run
    plan = structs.replace(run.plan, recompute="selective")
    return replace(run, plan=plan, assumed=(*run.assumed, "attention=its core recomputed"))


_TECHNIQUES = r"not packed|fused in backward|activation offloading|8-bit AdamW|selective: mlp"


def _inexpressible(cells: _Reader) -> str:
    """Return what is missing that nothing can stand in for, or what the model does not cover."""
    kind = cells.text("kind")
    if kind and not kind.startswith("measured"):
        return f"not a measurement: {kind}"
    words = cells.words + cells.text("optimizer") + kind
    if re.search(r"LoRA|Adapter|nf4|ViT|finetune", words) and "SFT" not in words:
        return "not full training of a language model"
    needed = ["seq_len", "n_gpus"]
    if find_preset(_preset_name(cells)) is None:
        needed = ["layers", "hidden", *needed]
    absent = [name for name in needed if not cells.count(name)]
    if absent:
        return "not stated: " + ", ".join(absent)
    if find_accelerator(cells.text("gpu")) is None:
        return f"unknown accelerator {cells.text('gpu')!r}"
    technique = re.search(_TECHNIQUES, words + " " + cells.text("act_ckpt"))
    if technique:
        return f"no plan names this technique: {technique.group()}"
    if cells.text("unit") in {"ms", "%"}:
        return f"measured in {cells.text('unit')}, not bytes"
    return ""


# --- the model


def _preset_name(cells: _Reader) -> str:
    """Return the model's name without what follows it: ``Llama3.1-8B torchtitan``."""
    return (cells.text("model").split() or [""])[0]


def _model(cells: _Reader) -> Transformer:
    """Return the preset of these sizes, or a transformer whose count comes closest to the row's."""
    layers, hidden = cells.count("layers"), cells.count("hidden")
    named = find_preset(_preset_name(cells))
    if named is not None and not (layers and hidden):
        return named
    heads = cells.count("heads") or cells.assume("heads", _usual_heads(hidden, cells.count("tp")))
    numbers = _expert_numbers(cells)
    found = matching(
        layers,
        hidden,
        heads,
        kv_heads=cells.count("kv_heads") or heads,
        vocabulary=cells.count("vocab"),
        experts=numbers[0],
    )
    return found or _nearest(cells, layers, hidden, heads)


def _usual_heads(hidden: int, tensor: int) -> int:
    """Return the heads, whole on each tensor rank, whose size comes closest to 128."""
    step = max(tensor, 1)
    fitting = [heads for heads in range(step, hidden + 1, step) if hidden % heads == 0]
    return min(fitting, key=lambda heads: (abs(hidden / heads - 128), heads), default=1)


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
    if shapes[0].experts is not None:
        return shapes[1]
    stated = cells.number("params_B") * 1e9
    if not stated:
        return shapes[0]
    return min(shapes, key=lambda shape: abs(count_parameters(shape).total - stated))


def _expert_numbers(cells: _Reader) -> tuple[int, int]:
    numbers = re.findall(r"\d+", cells.text("moe(experts,topk)"))
    return (int(numbers[0]), int(numbers[1])) if len(numbers) > 1 else (0, 0)


def _experts(cells: _Reader, ffn: int) -> Experts | None:
    count, per_token = _expert_numbers(cells)
    if not count:
        return None
    stated = re.search(r"moe_ffn (\d+)", cells.text("arch_source"))
    return Experts(count=count, per_token=per_token, ffn=int(stated.group(1)) if stated else ffn)


# --- the plan


def _plan(cells: _Reader, devices: int, program: Program, layers: int) -> tuple[ParallelPlan, int]:
    tensor, pipeline = cells.count("tp") or 1, cells.count("pp") or 1
    context = cells.count("cp") or 1
    data = cells.count("dp") or max(1, devices // (tensor * pipeline * context))
    batch = cells.count("global_batch")
    micro = cells.count("micro_batch")
    if not micro:
        micro = cells.assume("micro_batch", _micro_batch(batch, data, pipeline))
    if not batch:
        batch = cells.assume("global_batch", micro * data)
    chunks = cells.count("vpp") or _virtual_stages(cells, pipeline, layers)
    precision = "bf16_pure" if program.name == "torchtune" else _precision(cells)
    recompute, recompute_layers = _recompute(cells, program, layers // pipeline)
    zero = int(cells.number("zero"))
    plan = ParallelPlan(
        tensor=tensor,
        pipeline=pipeline,
        context=context,
        data=data,
        expert=cells.count("ep") or 1,
        sequence_parallel=_sequence_parallel(cells, tensor, program, recompute),
        schedule="interleaved" if chunks > 1 else "1f1b",
        virtual_stages=chunks,
        stage_layers=_stage_layers(program, pipeline, layers),
        zero=zero,  # type: ignore[arg-type]
        shard=min(_shard(cells, devices), data * context),
        gather_unit="tensor" if program.gather_by_tensor else "layer",
        micro_batch=micro,
        recompute=recompute,  # type: ignore[arg-type]
        recompute_layers=recompute_layers,
        flash_attention=_flash_attention(cells, program),
        native_attention=program.native_attention or _settled(cells),
        fused=program.fused,
        blocking_launches=program.blocking_launches,
        precision=precision,  # type: ignore[arg-type]
        overlap_gradients=zero > 0 and program.prefetch,
        overlap_parameters=zero > 0 and program.prefetch,
        overlap_tensor=program.overlap_tensor,
        gradient_bytes=_gradient_bytes(program, precision),
        reduce_bytes=program.reduce_bytes,
        loss=program.loss,
        dropout=program.dropout,
    )
    return plan, batch


def _shard(cells: _Reader, devices: int) -> int:
    """Return the ranks of a shard group as the row states them, or 0 for all of them.

    MaxText's are a product of those in a domain and those across, said also for one other size of
    a job: ``ici_FSDP 8 x dcn_FSDP 16 (32 at 256 GPUs)``.
    """
    notes = cells.text("notes")
    across = re.search(r"ici_FSDP (\d+) x dcn_FSDP (\d+)(?: \((\d+) at (\d+) GPUs\))?", notes)
    if across:
        inside, usual, other, at = (int(number or 0) for number in across.groups())
        return inside * (other if devices == at else usual)
    stated = re.search(r"shard group (\d+)", cells.text("zero")) or re.search(r"FSDP=(\d+)", notes)
    return int(stated.group(1)) if stated else 0


def _micro_batch(batch: int, data: int, pipeline: int) -> int:
    """Return 1 in a pipeline, which lives on many micro-batches; else up to 4."""
    share = batch // data if batch else 1
    if pipeline > 1:
        return 1
    return max(size for size in (1, 2, 4) if size == 1 or (share and share % size == 0))


def _virtual_stages(cells: _Reader, pipeline: int, layers: int) -> int:
    """Return 1 unless the row says that an interleaved schedule was used."""
    if pipeline > 2 and "interleaved" in cells.text("notes"):
        chunks = max((v for v in (1, 2, 3) if layers // pipeline % v == 0), default=1)
        return int(cells.assume("virtual_stages", chunks))
    return 1


def _stage_layers(program: Program, pipeline: int, layers: int) -> tuple[int, ...]:
    """Return the layers of each stage where the program's cut is not the even one."""
    if program.even_ends and pipeline > 2 and layers % pipeline and (layers + 2) % pipeline == 0:
        inner = (layers + 2) // pipeline
        return (inner - 1, *(inner,) * (pipeline - 2), inner - 1)
    full = -(-layers // pipeline)
    rest = layers - full * (pipeline - 1)
    if program.full_first and 0 < rest < full:
        return (*(full,) * (pipeline - 1), rest)
    return ()


def _precision(cells: _Reader) -> str:
    text = cells.text("precision").lower()
    if not text:
        known = find_accelerator(cells.text("gpu"))
        return str(cells.assume("precision", "fp8" if known and known.flops_8 else "bf16"))
    if "rowwise" in text:
        return "fp8_rowwise"
    for name, means in (("fp8", "fp8"), ("fp4", "fp8"), ("fp16", "fp16"), ("pure", "bf16_pure")):
        if name in text:
            return means
    return "fp32" if "fp32" in text and "bf16" not in text else "bf16"


def _recompute(cells: _Reader, program: Program, stage_layers: int) -> tuple[str, int]:
    """Return the kind, and the layers of a stage when it is not all of them."""
    text = cells.text("act_ckpt")
    if not text:
        return str(cells.assume("recompute", "none")), 0
    if text.startswith("selective") and program.by_operator:
        if "every 2nd layer" in cells.text("notes"):
            return "full", max(1, stage_layers // 2)
        return "operators", 0
    kind = next((kind for kind in ("none", "selective", "full") if text.startswith(kind)), "none")
    return kind, 0


def _sequence_parallel(cells: _Reader, tensor: int, program: Program, recompute: str) -> bool:
    stated = cells.text("seq_parallel").lower()
    if tensor == 1:
        return False
    if stated:
        return stated.startswith(("y", "t"))
    if program.sequence_parallel == "selective":
        return recompute == "selective"
    return program.sequence_parallel == "always"


def _flash_attention(cells: _Reader, program: Program) -> bool:
    """Return what the row says; newer devices than A100 are not trained without it."""
    stated = cells.text("flash_attention")
    return stated.startswith("y") if stated else program.flash or not _settled(cells)


def _settled(cells: _Reader) -> bool:
    """Return whether the device is old enough that common kernels were written for it."""
    known = find_accelerator(cells.text("gpu"))
    return known is None or known.family in {"v100", "a100", "tpu"}


def _gradient_bytes(program: Program, precision: str) -> int:
    """Return 2 for fp16 of a program that sums bf16 gradients in fp32 beside the 16-bit ones."""
    return 2 if program.gradient_bytes and precision == "fp16" else program.gradient_bytes


# --- the machine


def _fabric(cells: _Reader, accelerator: AcceleratorType) -> Fabric:
    words = {name: cells.text(name) for name in ("source", "interconnect", "notes")}
    return fabric_of(words, cells.count("n_gpus"), cells.count("nodes"), accelerator)


# --- what was measured


def _step_s(cells: _Reader, model: Transformer, devices: int, batch: int) -> float:
    stated = cells.number("measured_step_time_s")
    if stated:
        return stated
    tokens = batch * cells.count("seq_len")
    rate = cells.number("tokens_per_s_per_gpu")
    if rate:
        return tokens / (rate * devices)
    rate = cells.number("measured_TFLOPs_per_gpu") * 1e12
    flops = float(tokens * flops_per_token(model, cells.count("seq_len")))
    if re.search(r"incl. recomp", cells.text("flops_convention")) and "full" in cells.text(
        "act_ckpt"
    ):
        flops *= 4.0 / 3.0  # one forward more, beside one forward and a backward of two
    return flops / (rate * devices) if rate else 0.0


_UNIT_BYTES = {"GB": 1e9, "GiB": 2.0**30, "MiB": 2.0**20, "bytes": 1.0}


def _memory_bytes(cells: _Reader) -> float:
    stated = cells.number("peak_memory_GB") * 1e9
    if stated or not cells.text("kind").startswith("measured"):
        return stated
    unit = (cells.text("unit").split() or [""])[0]
    return cells.number("value") * _UNIT_BYTES.get(unit, 0.0)


def _counter(cells: _Reader) -> Counter:
    text = cells.text("counter")
    if "allocated" in text or "active" in text:
        return "allocated"
    return "device" if "nvidia-smi" in text or "bigscience" in cells.words else "reserved"
