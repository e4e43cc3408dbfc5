"""What a block of the model asks of the ranks that hold the rest of it; here: nobody does.

The model is written once. Where it is cut (`gridloom.runtime.inside`), other links stand in for
these, with the same meaning: what comes in and goes out is this rank's part.
"""

import torch
from torch import Tensor
from torch.nn import functional as F


class Links:
    """The links of a model that one rank holds whole: every method hands on what it is given.

    Attributes:
        tensor: Ranks that share each matrix; this one holds ``1 / tensor`` of its rows or columns.
        expert: Ranks that the experts of a layer are spread over.
        token_stream: Ranks that the tokens of the residual stream are spread over.
    """

    tensor = 1
    expert = 1
    token_stream = 1

    def rotary(self, table: Tensor, time: int) -> Tensor:
        """Return the rows of ``table`` ``[positions, size]`` of this rank's ``time`` tokens."""
        return table[:time]

    def positions(self, time: int) -> int:
        """Return the positions of a whole sequence of which this rank has ``time``."""
        return time

    def share(self, tokens: Tensor) -> Tensor:
        """Return the tokens or targets, of ``[batch, time]``, that this rank embeds and scores."""
        return tokens

    def embedded(self, x: Tensor) -> Tensor:
        """Turn embedded tokens into the residual stream, ``[batch, time, hidden]``."""
        return x

    def scored(self, x: Tensor) -> Tensor:
        """Turn the residual stream into the tokens that this rank scores."""
        return x

    def enter(self, x: Tensor) -> Tensor:
        """Turn the residual stream into what matrices cut by rows read."""
        return x

    def leave(self, x: Tensor) -> Tensor:
        """Turn what matrices cut by columns give into a contribution to the residual stream."""
        return x

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Return causal attention, ``[batch, heads, time, size]``, over the whole sequence."""
        grouped = query.shape[1] != key.shape[1]
        return F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=grouped)

    def over_sequence(self, counts: Tensor) -> Tensor:
        """Return counts of this rank's tokens summed over all ranks that share the sequences."""
        return counts

    def to_experts(self, rows: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        """Send rows to the ranks that hold their experts.

        Args:
            rows: ``[rows, hidden]``, in the order of their experts.
            counts: Rows of each of all experts.

        Returns:
            The rows that came, by sender and then by expert, and ``[senders, own experts]``, how
            many.
        """
        return rows, counts[None]

    def from_experts(self, rows: Tensor, counts: Tensor, came: Tensor) -> Tensor:
        """Send rows back where ``to_experts`` had them from; arguments as it took and gave."""
        return rows


WHOLE = Links()
"""The links of a model that is not cut."""


def causal_mask(queries: int, keys: int, device: torch.device) -> Tensor:
    """Return ``[queries, keys]``, true where a query may look: the last query sees all keys."""
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)
