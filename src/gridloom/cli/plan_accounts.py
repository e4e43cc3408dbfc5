"""Bytes of parameters, gradients and optimizer by a convention, whole and sharded by ZeRO."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from rich.table import Table

from gridloom.base.errors import InputError, Problem
from gridloom.cli.output import table
from gridloom.cli.plan_words import gigabytes
from gridloom.model.parallel import ParallelPlan
from gridloom.planner.cases import plan_columns
from gridloom.planner.memory import model_states

Stage = Literal[0, 1, 2, 3]
STAGES: tuple[Stage, ...] = (0, 1, 2, 3)


@dataclass(frozen=True)
class Account:
    """Bytes a parameter by a convention.

    Attributes:
        name: For a person.
        weights: Of the weights.
        gradients: Of their gradients.
        optimizer: Of all that the optimizer keeps, an fp32 copy of the weights among it.
    """

    name: str
    weights: float
    gradients: float
    optimizer: float


SHORT = Account("Adam, 3 x 2 bytes", 2.0, 2.0, 6.0)
"""The optimizer's copy and moments in 16 bits, as rough estimates often have it."""

STANDARD = Account("Adam, 3 x 4 (standard)", 2.0, 2.0, 12.0)
"""Mixed precision with AdamW (Rajbhandari et al., 2020, section 3.1): 12 bytes of states."""


def read_accounts(text: str) -> tuple[Account, ...]:
    """Return the account that ``text`` states beside the standard one; the two usual without.

    Args:
        text: Bytes a parameter of the optimizer, as ``6``, or of weights, gradients and optimizer,
            as ``2+2+6``.

    Raises:
        InputError: It is neither.
    """
    if not text:
        return (SHORT, STANDARD)
    try:
        numbers = [float(part) for part in text.replace(",", "+").split("+")]
    except ValueError:
        numbers = []
    if len(numbers) not in {1, 3} or not all(0 <= number < 1000 for number in numbers):
        right = "write the optimizer's, as 12, or those of weights, gradients and optimizer: 2+2+12"
        raise InputError([Problem(f"{text!r} cannot be", right, field="--bytes-per-parameter")])
    weights, gradients, optimizer = numbers if len(numbers) == 3 else (2.0, 2.0, numbers[0])
    name = f"{weights:g} + {gradients:g} + {optimizer:g} bytes a parameter"
    stated = Account(name, weights, gradients, optimizer)
    known = (replace(stated, name=usual.name) == usual for usual in (STANDARD, SHORT))
    if next(known):
        return (STANDARD,)
    return (SHORT if next(known) else stated, STANDARD)


def held_bytes(account: Account, parameters: float, ranks: int, zero: Stage) -> dict[str, float]:
    """Return the bytes a device by kind, of parameters that ``ranks`` share at a ZeRO stage."""
    plan = ParallelPlan(data=ranks, zero=zero)
    columns = replace(
        plan_columns(plan),
        weight_bits=account.weights * 8,
        gradient_bytes=account.gradients,
        moment_bytes=account.optimizer,
        master_bytes=0.0,
    )
    lines = model_states(columns, parameters)
    return {kind: float(size) for kind, size in lines.items() if kind != "master weights"}


def accounts_table(accounts: Sequence[Account], parameters: float, ranks: int) -> Table:
    """Return the accounts: all bytes by kind, and a device's at each ZeRO stage over ``ranks``."""
    rows = []
    for account in accounts:
        whole = held_bytes(account, parameters, 1, 0)
        cells = [gigabytes(size) for size in whole.values()]
        shares = [
            gigabytes(sum(held_bytes(account, parameters, ranks, zero).values()))
            for zero in STAGES[1:]
        ]
        rows.append((account.name, *cells, gigabytes(sum(whole.values())), *shares))
    heads = ("account", "parameters", "gradients", "optimizer", "all")
    shared = tuple(f"ZeRO-{zero}" for zero in STAGES[1:])
    return table((*heads, *shared), rows, right=(*heads[1:], *shared))


def accounts_as_json(
    accounts: Sequence[Account], parameters: float, ranks: int
) -> list[dict[str, Any]]:
    """Return what machines are told of the accounts."""
    return [
        {
            "name": account.name,
            "bytes_per_parameter": {
                "parameters": account.weights,
                "gradients": account.gradients,
                "optimizer": account.optimizer,
            },
            "bytes": held_bytes(account, parameters, 1, 0),
            "bytes_per_device": {
                f"zero_{zero}": sum(held_bytes(account, parameters, ranks, zero).values())
                for zero in STAGES
            },
        }
        for account in accounts
    ]
