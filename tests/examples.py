"""How often a law is tried: a little in every run of the tests, much in `make test-long`."""

from hypothesis import settings

LONG = settings.get_current_profile_name() == "long"


def at_least(count: int, *, stateful_steps: int = 0) -> settings:
    """Return settings for a law that needs more examples than most, or fewer will do for.

    Args:
        count: So many in a short run; in a long one as many as the profile says, if those are more.
        stateful_steps: Of each history, where the law is about one; 0 for the profile's.
    """
    examples = max(count, settings().max_examples) if LONG else count
    if not stateful_steps:
        return settings(max_examples=examples)
    return settings(max_examples=examples, stateful_step_count=stateful_steps)


def seeds(short: int, long: int) -> range:
    """Return the seeds of worlds that a law is tried in, in a short and in a long run."""
    return range(long if LONG else short)
