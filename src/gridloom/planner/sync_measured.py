"""What a sync method cost in loss where it was measured; rows are added as they come.

A row says how much higher the loss on held-out text was than with every step averaged whole, after
equal tokens, by ``bench/wan_loss.py``.
"""

from gridloom.planner.sync_loss import LossRow


def _outer(
    every: int, fragments: int, bits: int, loss: float, seeds: int = 1, spread: float = 0.0
) -> LossRow:
    return LossRow(
        kind="outer",
        every=every,
        fragments=fragments,
        codec="blocks",
        bits=bits,
        parameters=1_330_000,
        tokens=3_000_000,
        loss=loss,
        seeds=seeds,
        spread=spread,
        source=f"gridloom's own measurement, {seeds} seed{'s' * (seeds > 1)}",
        command=f"python -m bench.wan_loss --every {every} --fragments {fragments} --bits {bits}",
    )


LOSS_ROWS: tuple[LossRow, ...] = (
    _outer(8, 4, 4, 0.0034, seeds=2, spread=0.0035),
    _outer(48, 8, 4, 0.0354),
    _outer(8, 4, 1, 0.0083, seeds=3, spread=0.0062),
    _outer(14, 7, 1, 0.0122, seeds=2, spread=0.0076),
)
