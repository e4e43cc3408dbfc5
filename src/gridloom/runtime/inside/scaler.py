"""The scale of the loss in fp16: large, so that small gradients survive, and not too large.

Dynamic loss scaling (Micikevicius et al. 2018, section 3.2): after a step whose gradients are not
finite, which is skipped, the scale is halved; after many good steps in a row it is doubled.
"""

from collections.abc import Mapping

FIRST_SCALE = 2.0**16
"""Near the largest fp16 number, 65504; the first steps find their way down, if they must."""

GROWTH_STEPS = 2000
"""Good steps in a row before a larger scale is tried (the same source, section 3.2)."""

LEAST_SCALE, LARGEST_SCALE = 2.0**-24, 2.0**24
"""Below the least, fp16 is not what is wrong; above the largest nothing more is gained. Losses are
sums over tokens here, so that a scale of 1 is as large as the number of tokens is elsewhere."""


class LossScaler:
    """What the loss is multiplied by before the backward pass, and gradients divided by after.

    All ranks feed it the same verdicts, so that all have the same scale.

    Attributes:
        scale: The factor, a power of two, so that it rounds nothing.
        good_steps: Steps in a row since the scale was changed.
        skipped: Steps skipped in a row.
    """

    def __init__(self, scale: float = FIRST_SCALE, growth_steps: int = GROWTH_STEPS) -> None:
        self.scale, self.good_steps, self.skipped = scale, 0, 0
        self._growth_steps = growth_steps

    def update(self, *, finite: bool) -> None:
        """Learn whether the gradients of a step were finite; if not, it was skipped."""
        if not finite:
            self.scale = max(self.scale / 2, LEAST_SCALE)
            self.good_steps, self.skipped = 0, self.skipped + 1
            return
        self.good_steps, self.skipped = self.good_steps + 1, 0
        if self.good_steps >= self._growth_steps:
            self.scale, self.good_steps = min(self.scale * 2, LARGEST_SCALE), 0

    @property
    def lost(self) -> bool:
        """Whether even the least scale overflows: the model itself is no longer finite."""
        return self.scale == LEAST_SCALE and self.skipped > 1

    def state(self) -> dict[str, float]:
        """Return what a checkpoint keeps."""
        return {"scale": self.scale, "good_steps": float(self.good_steps)}

    def load(self, state: Mapping[str, float]) -> None:
        """Go on from a checkpoint."""
        self.scale, self.good_steps = float(state["scale"]), int(state["good_steps"])
        self.skipped = 0
