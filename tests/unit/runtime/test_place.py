"""Where a process stands, read from its environment."""

import dataclasses
from pathlib import Path
from typing import Any

import psutil
import pytest

from gridloom.base.codec import encode
from gridloom.base.errors import InputError
from gridloom.model.parallel import ParallelPlan, SiteSync
from gridloom.runtime.place import ALONE, Place, interface_of, place_in
from gridloom.wire.agent import Rendezvous
from gridloom.wire.launch import Rank


def rank(number: int = 0, **changes: Any) -> Rank:
    """Return a rank of two sites with two ranks each; the first site has two nodes."""
    values: dict[str, Any] = {
        "job_id": "job-1", "attempt": 1, "epoch": 1, "rank": number, "world_size": 4,
        "local_rank": max(0, number - 2), "local_world_size": 1 if number < 2 else 2,
        "node_rank": min(number, 2), "node_count": 3,
        "site": "north" if number < 2 else "south", "site_ranks": (("north", 2), ("south", 2)),
        "node_addresses": ("10.0.0.1", "10.0.0.2", "10.1.0.1"), "node_ranks": (1, 1, 2),
        "master_address": "10.0.0.1", "master_port": 5000, "restart_count": 0,
        "run_dir": "/run", "report_file": f"/run/report-{number}", "grace_s": 30,
    }  # fmt: skip
    return Rank(**(values | changes))


def places() -> list[Place]:
    return [place_in(rank(number).environment()) for number in range(4)]


def test_a_site_is_a_world_of_its_own() -> None:
    found = [(p.site, p.number, p.rank, p.size, p.local_rank, p.is_first) for p in places()]
    assert found == [
        ("north", 0, 0, 2, 0, True),
        ("north", 0, 1, 2, 0, False),
        ("south", 1, 0, 2, 0, True),
        ("south", 1, 1, 2, 1, False),
    ]
    assert {p.sites for p in places()} == {("north", "south")}
    assert [p.address for p in places()] == ["10.0.0.1", "10.0.0.2", "10.1.0.1", "10.1.0.1"]
    assert [p.report_file for p in places()] == [f"/run/report-{n}" for n in range(4)]
    assert {(p.job_id, p.run_dir) for p in places()} == {("job-1", "/run")}
    cut = ParallelPlan(tensor=2, data=2)
    assert place_in(rank(plan=cut).environment()).plan == cut


def test_a_speaker_is_where_it_was_last_written_down(tmp_path: Path) -> None:
    file = tmp_path / "rendezvous.json"
    found = place_in(rank(rendezvous_file=str(file)).environment())
    assert found.speakers["south"] == ("10.1.0.1", 5003)
    assert found.speaker_now("south") is None
    file.write_bytes(encode(Rendezvous(addresses=("10.0.0.1", "10.0.0.2", "10.1.0.9"), port=5000)))
    assert found.speaker_now("south") == ("10.1.0.9", 5003)
    assert found.speaker_now("north") == ("10.0.0.1", 5002)
    assert found.speaker_now("nowhere") is None
    file.write_text("{")
    assert found.speaker_now("south") is None
    assert place_in({}).speaker_now(ALONE) is None


def test_torchruns_variables_are_those_of_the_site_alone() -> None:
    found = [p.torchrun() for p in places()]
    assert [(f["RANK"], f["WORLD_SIZE"]) for f in found] == [("0", "2"), ("1", "2")] * 2
    assert [(f["MASTER_ADDR"], f["MASTER_PORT"]) for f in found[1:3]] == [
        ("10.0.0.1", "5000"),
        ("10.1.0.1", "5001"),
    ]
    again = rank(2).environment() | {name: value or "" for name, value in found[2].items()}
    assert (again["LOCAL_RANK"], again["LOCAL_WORLD_SIZE"]) == ("0", "2")  # as they were


def test_a_site_of_one_rank_has_none_of_torchruns_variables() -> None:
    alone = rank(
        1,
        world_size=2,
        local_rank=0,
        site="south",
        site_ranks=(("north", 1), ("south", 1)),
        node_rank=1,
        node_count=2,
        node_addresses=("10.0.0.1", "10.1.0.1"),
        node_ranks=(1, 1),
    )
    unset = place_in(alone.environment()).torchrun()
    assert set(unset.values()) == {None}
    left = {name for name in alone.environment() if not name.startswith("GRIDLOOM_")} - set(unset)
    assert left == {"ROLE_NAME", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_USE_AGENT_STORE"}


def test_how_the_sites_stay_one_model_is_what_the_job_says() -> None:
    how = SiteSync(kind="outer", every=8, fragments=2)
    assert place_in(rank(sync=how).environment()).sync == how
    assert place_in({}).sync == SiteSync()


def test_ranks_of_one_site_meet_at_its_first_one_and_no_port_is_used_twice() -> None:
    stores = [p.store for p in places()]
    assert stores[0] == stores[1] == ("10.0.0.1", 5000)
    assert stores[2] == stores[3] == ("10.1.0.1", 5001)
    ports = {stores[0][1], stores[2][1]}
    for place in places():
        ports.add(place.speakers[place.site][1])
    assert len(ports) == 2 + 2


def test_all_know_where_the_first_rank_of_each_site_listens() -> None:
    speakers = {"north": ("10.0.0.1", 5002), "south": ("10.1.0.1", 5003)}
    assert [place.speakers for place in places()] == [speakers] * 4


def test_nodes_of_equal_size_need_not_be_listed() -> None:
    sites = rank(
        3, site="south", node_ranks=(), local_world_size=2, node_rank=1, node_count=2,
        node_addresses=("10.0.0.1", "10.1.0.1"),
    )  # fmt: skip
    place = place_in(sites.environment())
    assert place.speakers == {"north": ("10.0.0.1", 5002), "south": ("10.1.0.1", 5003)}


def test_sites_may_have_different_numbers_of_ranks() -> None:
    uneven = rank(3, local_rank=0, node_ranks=(2, 1, 1), site_ranks=(("north", 3), ("south", 1)))
    place = place_in(uneven.environment())
    assert (place.site_sizes, place.first, place.rank, place.size) == ((3, 1), 3, 0, 1)
    assert [p.first for p in places()] == [0, 0, 2, 2]
    assert dataclasses.replace(place, sizes=()).site_sizes == (1, 1)  # as many as this one has


def test_the_interface_of_an_address_is_found() -> None:
    name = interface_of("127.0.0.1")
    assert "127.0.0.1" in [one.address for one in psutil.net_if_addrs()[name]]
    assert interface_of("192.0.2.1") == interface_of("not..a.name") == interface_of("") == ""


def test_a_variable_that_is_missing_or_malformed_is_named() -> None:
    environment = rank().environment()
    with pytest.raises(InputError, match="GRIDLOOM_SITES is not set"):
        place_in({name: v for name, v in environment.items() if name != "GRIDLOOM_SITES"})
    with pytest.raises(InputError, match="malformed"):
        place_in(environment | {"RANK": "first"})


def test_torchruns_variables_make_one_site() -> None:
    environment = {
        "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1",
        "MASTER_ADDR": "head", "MASTER_PORT": "29500",
    }  # fmt: skip
    place = place_in(environment)
    assert (place.rank, place.size, place.local_rank) == (3, 4, 1)
    assert place.store == ("head", 29500)
    assert (place.site, place.sites, place.speakers) == (ALONE, (ALONE,), {})
    with pytest.raises(InputError, match="torchrun is malformed"):
        place_in(environment | {"WORLD_SIZE": "many"})


def test_without_any_variable_a_process_is_alone() -> None:
    place = place_in({})
    assert (place.rank, place.size, place.local_rank, place.is_first) == (0, 1, 0, True)
    assert dataclasses.replace(place, site="x", sites=("x",)).number == 0
    assert place.job_id == place.report_file == place.run_dir == ""
