"""What crosses a slow link, made small: fewer bits a number, fewer numbers, or two thin factors.

A codec turns ``n`` numbers into a number of bytes that depends on ``n`` alone, so that sites can
exchange payloads without telling each other their sizes. What a codec loses in one exchange
``Feedback`` adds to the next, so that nothing is lost for good (Seide et al., 2014; Karimireddy et
al., 2019: with it, biased compression converges as none does).

| codec | in the mean | length of the result | feedback |
|---|---|---|---|
| ``Cast`` to fp16, bf16 | off by up to 2^-11, 2^-8 of a number | kept, but for that | advised |
| ``Blocks``, to the nearest | off by up to half a gap | kept within the relative error | needed |
| ``Blocks``, by chance | exact, to 2^-17 of a gap | grows by the variance | of no need |
| ``Signs`` | biased | never grows | needed |
| ``TopK``, ``DeepGradient`` | biased | never grows | needed, the second has its own |
| ``LowRank`` | biased | never grows, in fp32 | needed |

Numbers that are not finite are refused by every codec before its state changes: a poisoned update
must not reach the other sites.
"""

from gridloom.runtime.compress.blocks import Blocks
from gridloom.runtime.compress.codec import (
    Cast,
    Codec,
    Joined,
    NotFiniteError,
    require_length,
    seeded,
)
from gridloom.runtime.compress.deep import WARM_UP, DeepGradient, DeepPolicy
from gridloom.runtime.compress.feedback import Feedback, Losses
from gridloom.runtime.compress.low_rank import LowRank
from gridloom.runtime.compress.signs import Signs
from gridloom.runtime.compress.sparse import TopK

__all__ = [
    "WARM_UP",
    "Blocks",
    "Cast",
    "Codec",
    "DeepGradient",
    "DeepPolicy",
    "Feedback",
    "Joined",
    "Losses",
    "LowRank",
    "NotFiniteError",
    "Signs",
    "TopK",
    "require_length",
    "seeded",
]
