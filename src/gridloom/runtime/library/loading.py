"""A user's data, shared out over all ranks."""

from typing import Unpack

from gridloom.runtime.library.start import current
from gridloom.runtime.loader import DataOptions, Loader, Share


def data(dataset: object, *, batch_size: int, **options: Unpack[DataOptions]) -> Loader:
    """Return this rank's batches of a dataset that all ranks of all sites share.

    Every sample is read once a pass, in an order that follows from the seed. A loop over the
    batches goes on where the last one ended, and where ``gl.checkpoint`` says, to the sample.

    Args:
        dataset: Has ``__len__`` and ``__getitem__``: a map-style ``Dataset`` or a sequence.
        batch_size: Samples a rank takes at a time.
        **options: As ``DataOptions``: seed, shuffle, passes, collate, workers, drop_last, local.

    Raises:
        InputError: The dataset cannot be shared out, or a number cannot be.
    """
    place = current().place
    share = Share(place.first + place.rank, sum(place.site_sizes))
    if options.get("local", False):
        share = Share(place.rank, place.size)
    return Loader(dataset, batch_size, share, options)
