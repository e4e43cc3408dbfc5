"""The contract of drivers through a real slurmrestd, as far as it depends on how Slurm is asked."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.beds.test_slurm_contract import (  # noqa: F401
    SlurmHarness,
    WithRest,
    cluster,
)
from tests.contract.test_driver_life import (  # noqa: F401
    test_a_new_driver_takes_over,
    test_a_site_refuses_with_a_reason,
    test_a_stop_before_the_start_is_obeyed,
    test_a_stop_gives_time_to_save,
    test_a_task_is_seen_to_run_to_speak_and_to_end,
    test_a_task_is_started_once,
    test_an_end_is_repeated_and_never_another,
    test_the_culprit_is_told_and_not_its_victims,
    test_what_was_never_submitted_has_no_news,
)
from tests.contract.test_driver_ranks import (  # noqa: F401
    test_ranks_that_are_to_meet_wait_until_they_are_told_where,
    test_what_waits_for_others_can_be_cancelled,
)

pytestmark = [pytest.mark.bed, pytest.mark.timeout(120)]


@pytest.fixture
def harness(tmp_path: Path, cluster: WithRest) -> Iterator[SlurmHarness]:  # noqa: F811
    made = SlurmHarness(tmp_path, cluster, cluster.access(cluster.rest()))
    yield made
    made.close()
