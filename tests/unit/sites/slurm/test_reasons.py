"""Why jobs wait, code by code: all that Slurm has."""

import pytest

from gridloom.sites.slurm.reasons import WillStart, reason_code, waiting

YES = """
    None Prolog Priority Dependency Resources BeginTime Licenses AssociationJobLimit
    AssociationResourceLimit Reservation SchedDefer QOSJobLimit QOSResourceLimit Cleaning
    QOSGrpCpuLimit QOSGrpCPURunMinutesLimit QOSGrpJobsLimit QOSGrpMemLimit QOSGrpNodeLimit
    QOSGrpSubmitJobsLimit QOSMaxCpuPerUserLimit QOSMaxJobsPerUserLimit QOSMaxNodePerUserLimit
    QOSMaxSubmitJobPerUserLimit AssocGrpCpuLimit AssocGrpCPURunMinutesLimit AssocGrpJobsLimit
    AssocGrpMemLimit AssocGrpNodeLimit AssocGrpSubmitJobsLimit AssocMaxJobsLimit
    AssocMaxSubmitJobLimit JobArrayTaskLimit BurstBufferResources BurstBufferStageIn PowerNotAvail
    PowerReserved AssocGrpGRES AssocGrpGRESRunMinutes QOSGrpGRES QOSMaxGRESPerUser QOSGrpLicense
    MaxGRESPerAccount MaxJobsPerAccount FedJobLock AssocGrpBilling AssocGrpBillingRunMinutes
    QOSMaxBillingPerUser MaxNodePerAccount AssocGrpEnergy AssocGrpBB
"""
IF_HELPED = """
    PartitionDown PartitionInactive JobHeldAdmin JobHeldUser ReqNodeNotAvail FrontEndDown NodeDown
    SystemFailure JobLaunchFailure QOSUsageThreshold JobHoldMaxRequeue BurstBufferOperation
    AccountingPolicy ReservationDeleted QOSGrpCPUMinutesLimit QOSGrpWallLimit
    AssocGrpCPUMinutesLimit AssocGrpWallLimit AssocGrpGRESMinutes QOSGrpGRESMinutes
    QOSGrpMemoryMinutes AssocGrpBillingMinutes
"""
NEVER = """
    PartitionNodeLimit PartitionTimeLimit AssociationTimeLimit BadConstraints Constraints
    InactiveLimit InvalidAccount InvalidQOS QOSTimeLimit QOSNotAllowed AccountNotAllowed
    DependencyNeverSatisfied QOSMaxCpuPerJobLimit QOSMaxCpuMinutesPerJobLimit QOSMaxNodePerJobLimit
    QOSMaxWallDurationPerJobLimit QOSMinCpuNotSatisfied AssocMaxCpuPerJobLimit
    AssocMaxCpuMinutesPerJobLimit AssocMaxNodePerJobLimit AssocMaxWallDurationPerJobLimit
    AssocMaxGRESPerJob AssocMaxGRESPerNode AssocMaxGRESMinutesPerJob QOSMaxGRESPerJob
    QOSMaxGRESPerNode QOSMinGRES QOSMinMemory QOSMinNode DeadLine PartitionConfig MaxMemPerLimit
    ReservationInvalid AssocMaxBillingPerJob QOSMaxEnergyPerJob
"""
TABLE = [
    (code, will)
    for will, codes in (
        (WillStart.YES, YES),
        (WillStart.IF_HELPED, IF_HELPED),
        (WillStart.NEVER, NEVER),
    )
    for code in codes.split()
]


@pytest.mark.parametrize(("code", "will"), TABLE, ids=[code for code, _ in TABLE])
def test_whether_it_will_start(code: str, will: WillStart) -> None:
    found = waiting(code)
    assert found.will_start is will
    assert found.sentence
    assert code not in found.sentence, "a person reads a sentence"
    assert found.remedy or will is WillStart.YES


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("Resources", "Resources"),
        ("(Priority)", "Priority"),
        ("ReqNodeNotAvail, UnavailableNodes:n[1-2]", "ReqNodeNotAvail"),
        ("ReqNodeNotAvail(Unavailable:n1)", "ReqNodeNotAvail"),
        ("ReqNodeNotAvail,_Reserved_for_maintenance", "ReqNodeNotAvail"),
        ("Nodes required for job are DOWN, DRAINED or reserved", "Resources"),
        ("Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved", "Resources"),
        ("launch failed requeued held", "JobLaunchFailure"),
        ("launch_failed_requeued_held", "JobLaunchFailure"),
        ("", ""),
    ],
)
def test_the_code_of_what_is_printed(said: str, code: str) -> None:
    assert reason_code(said) == code
    assert waiting(said) == waiting(code)


def test_what_is_limited_is_named() -> None:
    assert "devices" in waiting("QOSMaxGRESPerUser").sentence
    assert "nodes" in waiting("AssocMaxNodePerJobLimit").sentence
    assert "nodes" not in waiting("AssocMaxGRESPerNode").sentence
    assert "processor cores over time" in waiting("AssocGrpCPUMinutesLimit").sentence
    assert "licences" in waiting("QOSGrpLicense").sentence
    assert "resources" in waiting("QOSGrpUnknown").sentence
    assert "quality of service" in waiting("QOSMinGRES").sentence


def test_a_code_that_nobody_knows_is_told_as_it_is() -> None:
    found = waiting("SomethingNew")
    assert (found.will_start, found.sentence) == (WillStart.YES, "Slurm says SomethingNew")
