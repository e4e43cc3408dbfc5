"""What a training program does that tables of its runs do not say: its kernels and conventions.

Each line is public knowledge of the program, read in its source or documentation: nothing here was
fitted. A row names its program in the words of its source, its notes and its model.
"""

import re
from dataclasses import dataclass, replace

from gridloom.model.parallel import Loss


@dataclass(frozen=True, kw_only=True)
class Program:
    """Conventions of a program.

    Attributes:
        name: Of the program.
        words: Pattern that finds it in a row's source, notes, model and accelerator.
        fused: Its element-wise kernels are fused, by hand or by a compiler.
        native_attention: Its fused attention was written for the newest devices.
        sequence_parallel: Tensor ranks share the tokens: ``never``, ``always``, or ``selective``
            when only attention is recomputed (Megatron-LM introduced both together).
        flash: It trains with fused attention on every device, said or not.
        prefetch: What ZeRO exchanges runs behind the products: gradients, parameters ahead.
        loss: How it holds the logits.
        gradient_bytes: Of a summed gradient; 0 for the usual.
        reduce_bytes: Of a gradient on its way between data ranks; 0 for the usual.
        dropout: It trains with dropout.
        by_operator: Selective recomputation keeps every second product.
        overlap_tensor: Tensor-parallel collectives run behind the products.
        gather_by_tensor: ZeRO-3 gathers parameter by parameter.
        blocking_launches: Its runs were made with ``CUDA_LAUNCH_BLOCKING``.
        even_ends: With two layers less than stages want, the first and last have one less each.
        full_first: Stages are filled one after the other, and the last has what remains.
    """

    name: str
    words: str = ""
    fused: bool = True
    native_attention: bool = True
    sequence_parallel: str = "never"
    flash: bool = False
    prefetch: bool = True
    loss: Loss = "copies"
    gradient_bytes: int = 0
    reduce_bytes: int = 0
    dropout: bool = False
    by_operator: bool = False
    overlap_tensor: bool = False
    gather_by_tensor: bool = False
    blocking_launches: bool = False
    even_ends: bool = False
    full_first: bool = False


_MEGATRON = Program(name="Megatron-LM", fused=False, sequence_parallel="selective", loss="in_place")

PROGRAMS = (
    Program(
        name="Megatron-DeepSpeed (bigscience)",
        words=r"bigscience",
        fused=False,
        # DeepSpeed's pipeline exchanges when its last micro-batch is through (runtime/pipe/engine).
        prefetch=False,
        gradient_bytes=6,
        dropout=True,
        blocking_launches=True,
        even_ends=True,
        # Its chronicles-prequel.md: of 78 layers on 12 stages the last has 1 and the others have 7.
        full_first=True,
    ),
    replace(
        _MEGATRON,
        name="DeepSpeed ZeRO-3",
        words=r"GPT.*ZeRO-3",
        gather_by_tensor=True,
        prefetch=False,
    ),
    Program(
        name="MaxText on TPU",
        words=r"TPU",
        sequence_parallel="always",
        loss="fused",
        by_operator=True,
        overlap_tensor=True,
        gather_by_tensor=True,
    ),
    Program(name="JAX on GPU", words=r"JAX|Paxml|MaxText", loss="fused", by_operator=True),
    Program(
        name="torchtitan",
        words=r"torchtitan|pytorch/ao|float8nocompile",
        native_attention=False,
        sequence_parallel="always",
        reduce_bytes=4,
        by_operator=True,
    ),
    Program(name="torchtune", words=r"torchtune", native_attention=False, flash=True),
    Program(
        name="NeMo",
        words=r"NeMo|Megatron-Bridge|dgxc",
        sequence_parallel="always",
        gradient_bytes=2,
        overlap_tensor=True,
    ),
    Program(
        name="llm-foundry",
        words=r"llm-foundry|mosaic|MPT-",
        fused=False,
        native_attention=False,
        reduce_bytes=4,
        loss="fused",
    ),
    Program(
        name="InternEvo",
        words=r"InternEvo|InternLM",
        fused=False,
        sequence_parallel="always",
        gradient_bytes=2,
        loss="fused",
    ),
    replace(_MEGATRON, words=r"Korthikanti", dropout=True, loss="copies"),
    _MEGATRON,
)
"""First match wins; the last has no words and stands for all others."""


def program_of(words: str) -> Program:
    """Return the program that a row's ``words`` name, adjusted to what they say of compilers."""
    found = next(program for program in PROGRAMS if re.search(program.words, words))
    if found.name == "torchtitan":
        eager = re.search(r"eager|nocompile", words) is not None
        return replace(
            found, fused=not eager, overlap_tensor="async TP" in words, loss=_ao_loss(words)
        )
    if found.name == "torchtune":
        chunked = re.search(r"chunked|checkpointing", words) is not None
        return replace(
            found, fused="packed" not in words, loss="chunked" if chunked else found.loss
        )
    return found


def _ao_loss(words: str) -> Loss:
    """Return torchtitan's loss: compiled since 2025 where it is the whole model's compiler's."""
    compiled = "pytorch/ao docs" in words and not re.search(r"H100", words)
    return "fused" if compiled else "copies"
