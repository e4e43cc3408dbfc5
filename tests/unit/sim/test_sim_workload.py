"""Logs to workloads: nouns, the choice of a reader, and the plain tables."""

import pytest

from gridloom.base.errors import InputError
from gridloom.model.spec import Dependency, GroupNeed
from gridloom.sim.workload import FORMATS, ReadOptions, Workload, larger_than, read, sniff

SIMPLE = """id,submit,duration,gpus
a,0,67,1
b,600,68,8
c,600,7205,12
"""

# Rows of the Philly trace (Microsoft, msr-fiddle/philly-traces, CC-BY-4.0), in the columns of a
# table made from it; the last two are in the hour that occurs twice, one of them made up
PHILLY = """job_id,submit_local,submit_s,submit_utc_s,duration_s,num_gpus,vc
3134,2017-10-06 19:56:38,2836598,2836598,562,1,vc00
3135,2017-10-06 19:56:38,2836598,2836598,562,1,vc00
1984,2017-09-07 09:57:50,295070,295070,2643038,1,vc00
9940,2017-10-27 12:48:47,4625327,4625327,686,24,vc10
26022,2017-11-05 01:32:10,5362330,5362330,1515,1,vc01
99999,2017-11-05 02:32:10,5365930,5369530,100,1,vc01
"""


def rows(workload: Workload) -> list[tuple[str, float, float, int]]:
    return [(a.job_id, a.submit_s, a.work_s, a.spec.options[0].devices) for a in workload.arrivals]


def test_simple_table_gives_its_rows_in_their_order() -> None:
    workload = read(SIMPLE)
    assert rows(workload) == [("a", 0, 67, 1), ("b", 600, 68, 8), ("c", 600, 7205, 12)]
    assert (workload.format, workload.dropped, workload.notes) == ("simple", (), ())
    first = workload.arrivals[0]
    assert (first.row, first.spec.name, first.spec.forecast.duration_s) == (2, "a", 67)
    assert first.spec.options[0].accelerator == "gpu"
    assert first.spec.options[0].groups == ()


def test_equal_shapes_are_one_object() -> None:
    workload = read("id,submit,duration,gpus\na,0,1,4\nb,1,1,4\nc,2,1,8\n")
    one, two, other = (arrival.spec.options for arrival in workload.arrivals)
    assert one is two
    assert one is not other


@pytest.mark.parametrize(
    ("gpus", "block"), [(1, 0), (2, 2), (7, 7), (8, 8), (12, 6), (24, 8), (11, 0), (1024, 8)]
)
def test_packed_gangs_sit_in_blocks_that_divide_them(gpus: int, block: int) -> None:
    workload = read(f"id,submit,duration,gpus\na,0,1,{gpus}\n", options=ReadOptions(gang="packed"))
    groups = workload.arrivals[0].spec.options[0].groups
    assert groups == ((GroupNeed(ranks=block, level="node"),) if block else ())


def test_optional_columns_of_the_simple_table() -> None:
    text = (
        "id,submit,duration,gpus,forecast,state,user,queue,priority,accelerator,gpus_min,gpus_max\n"
        "a,0,100,8,120,FAILED,ann,research,5,h100,3,20\n"
        "b,0,100,8,,,,,,,,\n"
    )
    a, b = read(text).arrivals
    assert (a.spec.forecast.duration_s, a.spec.user, a.spec.queue) == (120, "ann", "research")
    assert (a.spec.priority, a.state, a.fail_after_s, a.spec.elastic) == (5, "failed", 100, True)
    assert [(o.accelerator, o.devices, o.step_s) for o in a.spec.options] == [
        ("h100", 8, 1.0), ("h100", 4, 2.0), ("h100", 3, 8 / 3), ("h100", 16, 0.5),
        ("h100", 20, 0.4),
    ]  # fmt: skip
    assert (b.spec.forecast.duration_s, b.state, b.spec.elastic, b.spec.priority) == (
        100, "", False, 0,
    )  # fmt: skip
    assert len(b.spec.options) == 1


def test_kinds_of_the_log_or_those_that_are_given() -> None:
    text = "id,submit,duration,gpus,accelerator\na,0,1,1,t4\nb,0,1,1,\n"
    given = ReadOptions(accelerators=("h100", "a100"))
    kinds = [[o.accelerator for o in a.spec.options] for a in read(text, options=given).arrivals]
    assert kinds == [["t4"], ["h100", "a100"]]
    forced = ReadOptions(accelerators=("h100",), named=False)
    kinds = [[o.accelerator for o in a.spec.options] for a in read(text, options=forced).arrivals]
    assert kinds == [["h100"], ["h100"]]


@pytest.mark.parametrize(
    ("row", "why", "field"),
    [
        ("x,0,1", "field_count", ""),
        ("x,0,1,1,1", "field_count", ""),
        ('x,"0,1,1', "malformed", ""),
        ("x,soon,1,1", "not_a_number", "submit"),
        ("x,nan,1,1", "not_a_number", "submit"),
        ("x,0,inf,1", "not_a_number", "duration"),
        ("x,0,1_0,1", "not_a_number", "duration"),
        ("x,0,,1", "missing_field", "duration"),
        ("x,-1,1,1", "negative_time", "submit"),
        ("x,0,-5,1", "negative_time", "duration"),
        ("x,0,0,1", "zero_duration", "duration"),
        ("x,0,1,0", "no_devices", "devices"),
        ("x,0,1,-2", "no_devices", "devices"),
        ("x,0,1,1.5", "not_whole", "gpus"),
        ("x,0,1,99999999", "out_of_range", "devices"),
        ("x,0,1e300,1", "out_of_range", "duration"),
        ("good,0,1,1", "duplicate", ""),
        (",0,1,1", "missing_field", "id"),
    ],
)
def test_wrong_rows_are_dropped_with_their_line(row: str, why: str, field: str) -> None:
    workload = read(f"id,submit,duration,gpus\ngood,0,1,1\n\n{row}\nlast,5,1,2.0\n")
    assert [arrival.job_id for arrival in workload.arrivals] == ["good", "last"]
    (dropped,) = workload.dropped
    assert (dropped.row, dropped.why, dropped.field) == (4, why, field)
    assert dropped.sentence
    assert workload.dropped_by_reason() == {why: 1}


def test_reasons_are_counted_most_frequent_first() -> None:
    text = "id,submit,duration,gpus\na,0,1,1\nb,0,0,1\nc,0,0,1\nd,-1,1,1\ne,0,1,0\n"
    assert list(read(text).dropped_by_reason().items()) == [
        ("zero_duration", 2), ("negative_time", 1), ("no_devices", 1),
    ]  # fmt: skip


def test_nothing_usable_is_an_error_that_names_the_place() -> None:
    with pytest.raises(InputError) as caught:
        read("id,submit,duration,gpus\na,0,0,1\nb,0,1,0\n", file="log.csv")
    (problem,) = caught.value.problems
    assert (problem.file, problem.line, problem.field) == ("log.csv", 2, "duration")
    assert "1 no_devices, 1 zero_duration" in problem.message
    assert "more than 0 s" in problem.remedy
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("", "is empty"),
        (b" \n \n", "is empty"),
        ("id,submit,duration,gpus\n", "has no jobs"),
        ("what,is,this\n1,2,3\n", "unknown format"),
        ("<html></html>", "unknown format"),
        ("a|b|c\n1|2|3\n", "unknown format"),
        ('{"a": 1}', "unknown format"),
        (b"\x1f\x8b\x08\x00abc", "compressed"),
        (b"\x00\x01\x02id,submit", "is not text"),
        (b"\xff" * 50, "is not text"),
    ],
)
def test_texts_that_are_no_log(data: str | bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(data, file="log")


def test_a_wrong_format_or_column_is_an_error() -> None:
    with pytest.raises(InputError, match="there is no format excel"):
        read(SIMPLE, format="excel")
    with pytest.raises(InputError, match=r"log:1: submit_utc_s: there is no column submit_utc_s"):
        read(SIMPLE, format="philly", file="log")


@pytest.mark.parametrize(
    "data",
    [
        "\ufeff" + SIMPLE,
        b"\xef\xbb\xbf" + SIMPLE.encode(),
        ("\ufeff" + SIMPLE).encode("utf-16"),
        SIMPLE.replace("\n", "\r\n"),
        SIMPLE.replace("\n", "\r"),
        SIMPLE.replace("a,", '"a",').replace("id", '"ID"'),
    ],
)
def test_how_the_text_is_written_does_not_matter(data: str | bytes) -> None:
    assert rows(read(data)) == rows(read(SIMPLE))


def test_characters_that_are_no_utf_8_are_noted() -> None:
    workload = read(SIMPLE.encode() + b"\xe9,700,1,1\n")
    assert workload.arrivals[-1].job_id == "\ufffd"
    assert workload.notes == ("1 characters are not UTF-8 and were replaced",)


def test_rows_out_of_order_are_sorted_and_noted() -> None:
    workload = read("id,submit,duration,gpus\na,5,1,1\nb,3,1,1\nc,5,1,1\nd,4,1,1\n")
    assert [arrival.job_id for arrival in workload.arrivals] == ["b", "d", "a", "c"]
    assert workload.notes == ("2 rows were out of time order and were sorted",)


def test_philly_takes_the_time_with_a_zone_and_says_what_is_odd() -> None:
    workload = read(PHILLY)
    assert workload.format == "philly"
    assert rows(workload) == [
        ("1984", 295070, 2643038, 1), ("3134", 2836598, 562, 1), ("3135", 2836598, 562, 1),
        ("9940", 4625327, 686, 24), ("26022", 5362330, 1515, 1), ("99999", 5369530, 100, 1),
    ]  # fmt: skip
    assert workload.arrivals[0].spec.queue == "vc00"
    assert workload.origin_s == 1504508400
    order, twins, zone, twice = workload.notes
    assert order.startswith("1 rows were out of time order")
    assert twins.startswith("1 rows equal an earlier one in all but the id")
    assert "submit_utc_s was taken" in zone
    assert "01:00-02:00 of 2017-11-05 occurs twice: its 1 rows" in twice


def test_philly_twins_may_be_dropped() -> None:
    workload = read(PHILLY, options=ReadOptions(twins="drop"))
    assert [(d.row, d.why) for d in workload.dropped] == [(3, "duplicate")]
    assert len(workload.arrivals) == 5


def test_philly_without_a_zone_says_so() -> None:
    text = "job_id,submit_local,submit_s,duration_s,num_gpus\n1,2017-10-06 19:56:38,5,6,1\n"
    workload = read(text)
    assert rows(workload) == [("1", 5, 6, 1)]
    assert "local time" in workload.notes[-1]


def test_pai_rows_are_named_by_their_place() -> None:
    workload = read("submit_s,duration_s,units\n0,91469,1\n2077,90466,400\n")
    assert workload.format == "pai"
    assert rows(workload) == [("pai-1", 0, 91469, 1), ("pai-2", 2077, 90466, 400)]


def test_jobs_larger_than_the_grid_are_moved_to_the_dropped() -> None:
    workload = larger_than(read(SIMPLE + "d,1,0,1\n"), 8)
    assert [arrival.job_id for arrival in workload.arrivals] == ["a", "b"]
    assert [(d.row, d.why) for d in workload.dropped] == [
        (4, "larger_than_grid"), (5, "zero_duration"),
    ]  # fmt: skip
    assert workload.dropped[0].sentence == "c needs 12 devices, the grid has 8"
    assert larger_than(workload, 8) is workload


def test_a_job_that_can_shrink_into_the_grid_stays() -> None:
    text = "id,submit,duration,gpus,gpus_min\na,0,1,16,4\nb,0,1,16,16\n"
    workload = larger_than(read(text), 8)
    assert [arrival.job_id for arrival in workload.arrivals] == ["a"]


def test_nobody_waits_for_a_job_that_is_larger_than_the_grid() -> None:
    line = "{} 0 -1 10 {} -1 -1 {} -1 -1 1 -1 -1 -1 -1 -1 {} -1\n"
    text = line.format(1, 64, 64, -1) + line.format(2, 4, 4, 1) + line.format(3, 4, 4, 2)
    workload = larger_than(read(text), 8)
    assert [arrival.spec.after for arrival in workload.arrivals] == [
        (), (Dependency(job_id="2", kind="afterany"),),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (SIMPLE, "simple"),
        ("job_id,submit_s,duration_s,num_gpus\n", "simple"),
        (PHILLY, "philly"),
        ("submit_s,duration_s,units\n", "pai"),
        ("; MaxProcs: 128\n1 0 -1\n", "swf"),
        ("1 0 -1 10 4 -1 -1 4 -1 -1 1 -1 -1 -1 -1 -1 -1 -1\n", "swf"),
        ("JobID|Submit|State|Elapsed|AllocTRES\n", "slurm"),
        ("JobID|#Submit|#State|#Elapsed|#AllocTRES\n", "slurm"),
        ("JobIDRaw|User\n", None),
        ('{"seq":1,"now_s":1.0,"seed":1,"events":[],"actions":[]}\n', "journal"),
        ('{"apiVersion": "v1", "items": [], "kind": "List"}', "kube"),
        ('[{"kind": "Job", "apiVersion": "batch/v1"}]', "kube"),
        ("name,cpu_milli,num_gpu,creation_time,deletion_time,scheduled_time\n", "openb"),
        ("instance_sn,role,app_name,gpu_request,creation_time\n", "dlrm"),
        ("name,time,application,num_replicas,batch_size\n", "sia"),
        ("job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time\n", "helios"),
        ("job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time\n", "acme"),
        ("job_id,vc,num_gpu,submit_time,iterations,model_name,duration\n", None),
        ("", None),
        ("one two " * 9, None),
        ("hello\n", None),
    ],
)
def test_formats_are_known_by_their_beginning(text: str, name: str | None) -> None:
    assert sniff(text) == name
    assert name is None or name in FORMATS
