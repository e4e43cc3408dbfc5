"""Sia's workloads; rows and measured times are made up in the columns of the originals."""

import pytest

from gridloom.base.errors import InputError
from gridloom.sim.workload import ReadOptions, read

ONE = """\
name,time,application,num_replicas,batch_size
cifar10-0,107.0,cifar10,1,2048
deepspeech2-1,110.0,deepspeech2,8,320
yolov3-2,120.0,yolov3,4,64
imagenet-3,130.0,imagenet,12,3200
bert-4,140.0,bert,12,384
"""
TWO = """\
source,workload,name,time,application,num_replicas,batch_size
philly,1,a,5,cifar10,4,2048
saturn,2,a,7,cifar10,4,2048
philly,1,b,6,cifar10,4,4096
"""
PROFILES = """\
app,cluster_type,placement,local_bsz,step_time,sync_time
cifar10,dgx,1,1024,0.5,0.0
cifar10,dgx,1,512,0.3,0.0
cifar10,dgx,1,256,0.2,0.0
cifar10,dgx,4,256,0.2,0.1
cifar10,dgx,4,512,0.4,0.1
cifar10,dgx,24,100,0.1,0.05
cifar10,other,4,512,9.9,0.1
"""


def test_durations_are_iterations_times_step_times() -> None:
    workload = read(ONE)
    assert workload.format == "sia"
    jobs = {arrival.job_id: arrival for arrival in workload.arrivals}
    # 2048 samples on one device are two passes of 1024: 3178 x (2 x 0.01989 + 2048 x 0.0006496)
    assert jobs["cifar10-0"].work_s == pytest.approx(4354.2, abs=1)
    # 8 replicas are two nodes: 2264 x (0.1894 + 40 x 0.02548 + 0.2322 + 6 x 0.02312)
    assert jobs["deepspeech2-1"].work_s == pytest.approx(3576.1, abs=1)
    assert jobs["yolov3-2"].work_s == pytest.approx(
        14577 * (2 * 0.1736 + 16 * 0.02651 + 0.03838 + 2 * 0.07393)
    )
    option = jobs["yolov3-2"].spec.options[0]
    assert option.devices == 4
    assert option.step_s * 14577 == pytest.approx(jobs["yolov3-2"].work_s)
    assert jobs["bert-4"].spec.queue == "bert"
    assert "fitted to nodes of 4 NVIDIA T4" in workload.notes[-1]


def test_sizes_of_jobs_are_as_sia_sorts_them() -> None:
    """Sia gives an application to a job by its GPU time: below 1 h, 10 h, 100 h, and above."""
    hours = {a.job_id: a.work_s * a.spec.options[0].devices / 3600 for a in read(ONE).arrivals}
    assert 1 < hours["cifar10-0"] < 2  # just above: on T4, where Sia sorts by a faster device
    assert 1 < hours["deepspeech2-1"] < 10
    assert 1 < hours["bert-4"] < 10
    assert 10 < hours["yolov3-2"] < 100
    assert hours["imagenet-3"] > 100


def test_other_batches_take_as_many_samples() -> None:
    text = "name,time,application,num_replicas,batch_size\na,0,bert,1,192\nb,0,bert,1,384\n"
    half, known = read(text).arrivals
    steps = [arrival.spec.options[0].step_s for arrival in (half, known)]
    assert half.work_s / steps[0] == pytest.approx(960)
    assert known.work_s / steps[1] == pytest.approx(480)


def test_elastic_jobs_may_take_other_numbers() -> None:
    workload = read(ONE, options=ReadOptions(elastic=True))
    options = workload.arrivals[1].spec.options
    assert [option.devices for option in options] == [8, 4, 2, 1, 16, 32]  # 320 / 10 samples
    assert workload.arrivals[1].spec.elastic
    assert options[3].step_s > options[0].step_s > options[4].step_s
    assert not read(ONE).arrivals[1].spec.elastic


def test_one_of_several_workloads() -> None:
    first = read(TWO)
    assert [(a.job_id, a.submit_s) for a in first.arrivals] == [("a", 5), ("b", 6)]
    assert [(d.row, d.why) for d in first.dropped] == [(3, "other_workload")]
    assert first.notes[0] == "of 2 workloads in the file, philly/1 was read"
    other = read(TWO, options=ReadOptions(part="saturn/2"))
    assert [(a.job_id, a.submit_s) for a in other.arrivals] == [("a", 7)]
    with pytest.raises(InputError, match="choose one of philly/1, saturn/2"):
        read(TWO, options=ReadOptions(part="philly/9"))
    with pytest.raises(InputError, match="the file is one workload"):
        read(ONE, options=ReadOptions(part="philly/9"))


def test_measured_step_times() -> None:
    options = ReadOptions(profiles=PROFILES, cluster="dgx")
    text = (
        "name,time,application,num_replicas,batch_size\n"
        "a,0,cifar10,1,2048\n"
        "b,0,cifar10,4,1536\n"
        "c,0,cifar10,4,2048\n"
        "d,0,cifar10,6,60\n"
        "e,0,cifar10,3,2048\n"
    )
    workload = read(text, options=options)
    steps = [arrival.spec.options[0].step_s for arrival in workload.arrivals]
    assert steps == pytest.approx([1.0, 0.3, 0.4, 0.1])  # twice, between, at the end, below
    assert workload.arrivals[2].work_s == pytest.approx(0.4 * 3178)
    assert [(d.row, d.why) for d in workload.dropped] == [(6, "missing_duration")]
    assert workload.notes[-1].endswith("measured on dgx")


def test_accumulation_waits_for_the_others_once() -> None:
    options = ReadOptions(profiles=PROFILES, cluster="dgx", elastic=True)
    text = "name,time,application,num_replicas,batch_size\na,0,cifar10,4,4096\n"
    (job,) = read(text, options=options).arrivals
    assert [o.devices for o in job.spec.options] == [4, 1]
    assert [o.step_s for o in job.spec.options] == pytest.approx([2 * 0.4 - 0.1, 4 * 0.5])


@pytest.mark.parametrize(
    ("profiles", "message"),
    [
        (PROFILES.replace("0.5,0.0", "fast,0.0"), "profiles:2: step_time: "),
        (PROFILES.replace(",dgx,", ",rtx,"), "nothing was measured on dgx; choose one of rtx"),
        (PROFILES.replace("24,100", "2x4,100"), "profiles:7: placement: "),
        ("app,placement\n", "no column cluster_type"),
    ],
)
def test_wrong_profiles_are_an_error(profiles: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(ONE, options=ReadOptions(profiles=profiles, cluster="dgx"))


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("x,0,gpt5,4,64", "unknown_application"),
        ("x,0,bert,0,64", "no_devices"),
        ("x,0,bert,4,0", "no_devices"),
        ("x,0,bert,four,64", "not_a_number"),
        ("x,0,bert,4,1e308", "out_of_range"),
        ("cifar10-0,0,bert,4,64", "duplicate"),
    ],
)
def test_wrong_rows_are_dropped(row: str, why: str) -> None:
    workload = read(ONE + row + "\n")
    assert [(d.row, d.why) for d in workload.dropped] == [(7, why)]
