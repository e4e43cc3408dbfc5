"""From an attempt to what each rank is told."""

from pathlib import PurePath

from msgspec.structs import replace
from tests.unit.control.nouns import restart, spec, start

from gridloom.control.orders import Start, log_path, task_orders, task_refs
from gridloom.core.turn import LeaseTerms
from gridloom.model.inventory import Site
from gridloom.model.parallel import ParallelPlan, SiteSync
from gridloom.model.spec import Batch, JobSpec
from gridloom.wire.agent import TaskOrder

RUN = PurePath("/runs/job-1")


def told(begun: Start, asked: JobSpec | None = None, **leases_s: float) -> tuple[TaskOrder, ...]:
    """Return the orders, where sites have leases of their own."""
    sites = {
        name: Site(name=name, kind="local", nodes=(), lease_s=leases_s.get(name, 0.0))
        for name in ("north", "south")
    }
    terms = LeaseTerms(lease_s=6.0, kill_margin_s=4.0)
    return task_orders(begun, asked or spec(), RUN, master_port=4001, sites=sites, terms=terms)


def test_ranks_are_numbered_over_sites_and_nodes_without_gaps() -> None:
    orders = told(start())
    ranks = [one.rank for order in orders for one in order.ranks]
    assert [rank.rank for rank in ranks] == [0, 1, 2, 3, 4, 5]
    assert [rank.local_rank for rank in ranks] == [0, 1, 0, 0, 1, 2]
    assert [rank.local_world_size for rank in ranks] == [2, 2, 1, 3, 3, 3]
    assert [rank.node_rank for rank in ranks] == [0, 0, 1, 2, 2, 2]
    assert {rank.node_count for rank in ranks} == {3}
    assert {rank.world_size for rank in ranks} == {6}
    assert [rank.site for rank in ranks] == ["north"] * 3 + ["south"] * 3
    assert {rank.site_ranks for rank in ranks} == {(("north", 3), ("south", 3))}


def test_every_rank_knows_where_rank_0_listens_and_where_the_nodes_are() -> None:
    orders = told(start())
    for order in orders:
        for one in order.ranks:
            assert (one.rank.master_address, one.rank.master_port) == ("10.0.0.1", 4001)
            assert one.rank.node_addresses == ("10.0.0.1", "10.0.0.2", "10.1.0.1")
            assert one.rank.node_ranks == tuple(len(order.ranks) for order in orders)


def test_every_rank_is_told_how_the_model_is_cut_and_how_the_sites_stay_one() -> None:
    how = SiteSync(kind="outer", every=8)
    begun, cut = start(), ParallelPlan(tensor=3, data=2, zero=1)
    plan = replace(cut, site_sync=how)
    option = replace(begun.placement.option, plan=plan)
    begun = replace(begun, placement=replace(begun.placement, option=option))
    orders = told(begun)
    ranks = [one.rank for order in orders for one in order.ranks]
    assert {(rank.sync, rank.plan) for rank in ranks} == {(how, cut)}


def test_devices_are_those_that_were_placed_and_every_rank_of_a_task_sees_them_all() -> None:
    orders = told(start())
    assert [one.devices for one in orders[2].ranks] == [(0, 1, 3)] * 3


def test_a_batch_script_is_one_rank_on_each_node_and_lies_in_the_run_directory() -> None:
    asked = replace(spec(), batch=Batch(warning="USR1"))
    orders = told(start(), asked)
    assert [len(order.ranks) for order in orders] == [1, 1, 1]
    assert [order.ranks[0].devices for order in orders][2] == (0, 1, 3)
    assert {order.argv[-1] for order in orders} == {"/runs/job-1/job.sbatch"}
    assert {order.batch for order in orders} == {asked.batch}


def test_files_are_apart_by_attempt_and_rank() -> None:
    orders = told(start(attempt=2))
    files = [one.log_file for order in orders for one in order.ranks]
    reports = [one.rank.report_file for order in orders for one in order.ranks]
    assert files[3] == str(log_path(RUN, 2, 3)) == "/runs/job-1/logs/attempt-2/rank-3.log"
    assert reports[3] == "/runs/job-1/attempts/2/rank-3.jsonl"
    assert len({*files, *reports}) == 12
    assert {one.rank.restart_count for order in orders for one in order.ranks} == {1}


def test_an_order_carries_the_program_and_the_terms() -> None:
    (order, *_) = told(start())
    assert order.argv == ("python", "train.py")
    assert (order.workdir, order.env, order.accelerator) == ("/work", {"A": "1"}, "cpu")
    assert (order.lease_s, order.lease_until_s, order.lapse_grace_s) == (6.0, 1006.0, 2.4)
    assert order.grace_s == order.ranks[0].rank.grace_s == 12.0


def test_a_site_may_have_a_lease_of_its_own() -> None:
    leases = [(order.lease_s, order.lease_until_s) for order in told(start(), south=30.0)]
    assert leases == [(6.0, 1006.0), (6.0, 1006.0), (30.0, 1030.0)]


def test_tasks_are_named_in_rank_order() -> None:
    assert [ref.domain for ref in task_refs(start())] == ["north/n1", "north/n2", "south/s1"]
    assert {(ref.job_id, ref.attempt, ref.epoch) for ref in task_refs(start())} == {("job-1", 1, 7)}


def test_a_site_that_starts_again_is_who_it_was_in_another_life() -> None:
    for site, count in (("north", 2), ("south", 1)):
        again = restart(site, life=3)
        before = {order.task.domain: order for order in told(start())}
        orders = told(again)
        assert [order.task for order in orders] == list(task_refs(again))
        assert len(orders) == count
        for order in orders:
            known = before[order.task.domain]
            assert order.task == replace(known.task, life=3)
            assert order.task.token != known.task.token
            assert order.lease_until_s == 1020.0
            for one, other in zip(order.ranks, known.ranks, strict=True):
                number = other.rank.rank
                reports = f"/runs/job-1/attempts/1/life-3/rank-{number}.jsonl"
                assert one.rank == replace(other.rank, restart_count=2, report_file=reports)
                assert (one.log_file, one.devices) == (other.log_file, other.devices)
