"""When a backward pass has completed the gradients of a bucket, while it goes on with others."""

from collections.abc import Callable, Collection, Sequence

from torch import nn


class InOrder:
    """Tells of buckets, in their order, once all parameters of one and of those before came."""

    def __init__(
        self, buckets: Sequence[Sequence[nn.Parameter]], ready: Callable[[int], None]
    ) -> None:
        """Wait for all parameters.

        Args:
            buckets: In order.
            ready: Called with the number of a bucket, once in a step.
        """
        self._buckets, self._ready = [list(bucket) for bucket in buckets], ready
        self._awaited: list[set[nn.Parameter]] = []
        self._next = 0
        self.restart()

    def restart(self, absent: Collection[nn.Parameter] = ()) -> None:
        """Begin a step, in which some parameters are not waited for."""
        self._awaited = [set(bucket).difference(absent) for bucket in self._buckets]
        self._next = 0

    def came(self, parameters: Collection[nn.Parameter]) -> None:
        """Note that the gradients of parameters are complete."""
        for awaited in self._awaited[self._next :]:
            awaited.difference_update(parameters)
        while self._next < len(self._awaited) and not self._awaited[self._next]:
            self._next += 1
            self._ready(self._next - 1)


class Backward:
    """Tells which gradients will not be added to any more in this step.

    How often a step adds to each is learnt from the step before: nothing is told in the first. Of
    a step that is unlike the one before, gradients are told of too early or not at all; whoever is
    told must look at them again at the end of the step.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        complete: Callable[[Collection[nn.Parameter]], None],
    ) -> None:
        """Listen to the gradients.

        Args:
            parameters: Whose.
            complete: Called with a parameter, in the thread of the backward pass.
        """
        self._complete = complete
        self._seen = dict.fromkeys(parameters, 0)
        self._expected: dict[nn.Parameter, int] = {}
        self._handles = [one.register_post_accumulate_grad_hook(self._came) for one in parameters]

    def end_step(self) -> list[nn.Parameter]:
        """Expect of the next step what has come in this one; return what has not."""
        self._expected, self._seen = self._seen, dict.fromkeys(self._seen, 0)
        return [parameter for parameter, count in self._expected.items() if not count]

    def stop(self) -> None:
        """Listen no more."""
        for handle in self._handles:
            handle.remove()

    def _came(self, parameter: nn.Parameter) -> None:
        self._seen[parameter] += 1
        if self._seen[parameter] == self._expected.get(parameter):
            self._complete([parameter])
