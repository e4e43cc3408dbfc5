"""Users' batch scripts, read as sbatch reads them."""

import pytest

from gridloom.base.errors import InputError
from gridloom.sites.slurm.records import Gres
from gridloom.sites.slurm.sbatch_file import NotTaken, parse
from gridloom.sites.slurm.submission import Component, Memory, Signal, Submission, Switches

HEAD = "#!/bin/bash\n"


def asked(*options: str) -> Submission:
    return parse(HEAD + "".join(f"#SBATCH {option}\n" for option in options) + "true\n").submission


def component(*options: str) -> Component:
    (found,) = asked(*options).components
    return found


def test_a_script_of_a_user() -> None:
    script = """\
#!/bin/bash -l
#SBATCH -J train            # what it is called
#SBATCH --account ml -p gpu,gpu2
#SBATCH --nodes=4 --ntasks-per-node=8
#SBATCH --gpus-per-node=h100:8
#SBATCH -c 12
#SBATCH --mem=1500G
#SBATCH -t 2-00:00:00
#SBATCH --output="logs/%x %j.out"
#SBATCH --signal=B:USR1@300
#SBATCH --mail-type=END --mail-user me@example.org
#SBATCH --exclusive
module load cuda
#SBATCH --nodes=8
srun python train.py
"""
    found = parse(script, "job.sh")
    assert found.submission == Submission(
        name="train",
        account="ml",
        time_limit_min=2880,
        stdout="logs/%x %j.out",
        signal=Signal(name="USR1", before_s=300),
        export="ALL",
        components=(
            Component(
                nodes=4,
                partition="gpu,gpu2",
                gres=(Gres(name="gpu", type="h100", count=8),),
                cpus_per_task=12,
                memory=Memory(mib=1536000),
                exclusive="node",
            ),
        ),
    )
    assert (found.tasks, found.tasks_per_node) == ((None,), (8,))
    assert found.not_taken == (
        NotTaken(
            option="--mail-type",
            written="--mail-type=END",
            line=11,
            why="gridloom does not use it",
        ),
        NotTaken(
            option="--mail-user",
            written="--mail-user me@example.org",
            line=11,
            why="gridloom does not use it",
        ),
    )
    assert found.ignored_lines == (14,)


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        (["-J x"], "name", "x"),
        (["-Jx"], "name", "x"),
        (["--job-name=x"], "name", "x"),
        (["--job-name x"], "name", "x"),
        (["--job-n=x"], "name", "x"),
        (["--job-name", "foo"], "name", "foo"),
        (["-J a", "-J b"], "name", "b"),
        (["-q high"], "qos", "high"),
        (["-A ml"], "account", "ml"),
        (["--comment='a b'"], "comment", "a b"),
        (["-x n[1-2],m"], "exclude", ("n1", "n2", "m")),
        (["-t 30"], "time_limit_min", 30),
        (["-t 1:30"], "time_limit_min", 2),
        (["-t 1:00:00"], "time_limit_min", 60),
        (["-t 1-12"], "time_limit_min", 2160),
        (["-t 0"], "time_limit_min", None),
        (["-t UNLIMITED"], "time_limit_min", None),
        (["-d afterok:3"], "dependency", "afterok:3"),
        (["-a 0-7%2"], "array", "0-7%2"),
        (["--signal=USR2"], "signal", Signal(name="USR2", to_batch=False)),
        (["--signal=B:SIGTERM@10"], "signal", Signal(name="TERM", before_s=10)),
        (["--signal=R:10@5"], "signal", Signal(name="10", before_s=5, to_batch=False)),
        (["--requeue"], "requeue", True),
        (["--no-requeue"], "requeue", False),
        (["-k"], "no_kill", True),
        (["--no-kill=off"], "no_kill", False),
        (["-D /x"], "directory", "/x"),
        (["--workdir=/x"], "directory", "/x"),
        (["-o a", "-e b"], "stderr", "b"),
        (["--open-mode=a"], "open_mode", "append"),
        (["--open-mode=truncate"], "open_mode", "truncate"),
        (["--export=NONE"], "export", "NONE"),
        (["--export=nil"], "export", "NIL"),
        (["--export=ALL,A=1,B="], "environment", {"A": "1", "B": ""}),
        (["--export=A=1"], "export", "NONE"),
        (["--reservation=r"], "reservation", "r"),
    ],
    ids=str,
)
def test_options_of_the_job(options: list[str], field: str, value: object) -> None:
    assert getattr(asked(*options), field) == value


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        (["-N 4"], "nodes", 4),
        (["-N4 -N3"], "nodes", 3),
        (["-N 2-4"], "nodes", 2),
        (["-N 2k"], "nodes", 2048),
        (["-N 1-15:4"], "nodes", 1),
        (["-N 8,4"], "nodes", 4),
        (["-C ib&hdr"], "constraint", "ib&hdr"),
        (["-w n[1-2]"], "nodelist", ("n1", "n2")),
        (["--gres=gpu:2,nic"], "gres", (Gres(name="gpu", count=2), Gres(name="nic"))),
        (["--gpus-per-node=2"], "gres", (Gres(name="gpu", count=2),)),
        (["--mem=64"], "memory", Memory(mib=64)),
        (["--mem=0"], "memory", Memory(mib=0)),
        (["--mem-per-cpu=4G"], "memory", Memory(mib=4096, per="cpu")),
        (["--mem-per-gpu=4GB"], "memory", Memory(mib=4096, per="gpu")),
        (["--switches=2"], "switches", Switches(count=2)),
        (["--switches=1@1:00:00"], "switches", Switches(count=1, wait_min=60)),
        (["--segment=4"], "segment", 4),
        (["-L a:2,b"], "licences", ("a:2", "b")),
        (["--exclusive=user"], "exclusive", "user"),
        (["--exclusive"], "exclusive", "node"),
    ],
    ids=str,
)
def test_options_of_a_component(options: list[str], field: str, value: object) -> None:
    assert getattr(component(*options), field) == value


def test_components_of_a_heterogeneous_job() -> None:
    found = parse(
        HEAD + "#SBATCH -J x -N2 -n 4 -t 10\n#SBATCH hetjob -N 3 -J x\n#SBATCH packjob\n"
        "#SBATCH -p gpu -t 20\n"
    )
    assert [(c.nodes, c.partition) for c in found.submission.components] == [
        (2, ""),
        (3, ""),
        (1, "gpu"),
    ]
    assert (found.submission.name, found.submission.time_limit_min) == ("x", 10)
    assert found.tasks == (4, None, None)
    assert [(n.written, n.line, n.why) for n in found.not_taken] == [
        ("-t 20", 5, "components of one job that differ in it")
    ]


@pytest.mark.parametrize(
    ("line", "option", "written", "why"),
    [
        (
            "#SBATCH --container-image=a",
            "--container-image",
            "--container-image=a",
            "no such option",
        ),
        ("#SBATCH --image a -N2", "--image", "--image a", "no such option"),
        ("#SBATCH --debug -N2", "--debug", "--debug", "no such option"),
        ("#SBATCH -HQ", "--hold", "-H", "does not use it"),
        ("#SBATCH --nice -N2", "--nice", "--nice", "does not use it"),
        ("#SBATCH -G 4", "--gpus", "-G 4", "does not use it"),
        ("#SBATCH -N 2-4", "--nodes", "-N 2-4", "not one number"),
        ("#SBATCH --export=ALL,HOME", "--export", "--export=ALL,HOME", "by name"),
        ("#PBS -l nodes=2", "#PBS", "#PBS -l nodes=2", "other schedulers"),
        ("#BSUB -n 2", "#BSUB", "#BSUB -n 2", "other schedulers"),
    ],
)
def test_what_gridloom_does_not_take(line: str, option: str, written: str, why: str) -> None:
    first = parse(f"{HEAD}{line}\n", "job.sh").not_taken[0]
    assert (first.option, first.written, first.line) == (option, written, 2)
    assert why in first.why


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("foo -N2", "job.sh:2: foo: this is no option"),
        (
            "-p=low",
            "job.sh:2: -p=low: a value stands behind -p without '=', or behind --partition=",
        ),
        ("-N=2", "job.sh:2: -N=2: a value stands behind -N without '='"),
        ("--exclu=a", "job.sh:2: --exclu=a: it could be --exclude, --exclusive"),
        ("--requeue=1", "job.sh:2: --requeue=1: --requeue takes no value"),
        ("-J", "job.sh:2: -J: --job-name wants a value"),
        ("--job-name", "job.sh:2: --job-name: --job-name wants a value"),
        ('-J ""', "job.sh:2: -J: --job-name wants a value"),
        ("-Z", "job.sh:2: -Z: sbatch knows no -Z"),
        ("-- -N2", "job.sh:2: --: sbatch knows no --"),
        ("-", "job.sh:2: -: this is no option"),
        ('-J "x', 'job.sh:2: a quote " is not closed'),
        (":", "job.sh:2: a word cannot begin with a colon there"),
        ("-N two", "job.sh:2: --nodes: 'two' is not what it takes: a number of at least 1"),
        ("-N 0", "job.sh:2: --nodes: '0' is not what it takes"),
        ("-t soon", "job.sh:2: --time: 'soon' is not what it takes: 'soon' is not a duration"),
        ("-t N/A", "job.sh:2: --time: 'N/A' is not what it takes: a time is wanted"),
        ("--mem=1.5G", "job.sh:2: --mem: '1.5G' is not what it takes: a whole amount of memory"),
        ("--signal=B:", "job.sh:2: --signal: 'B:' is not what it takes: a signal is wanted"),
        ("--exclusive=me", "job.sh:2: --exclusive: 'me' is not what it takes: it is one of user"),
        ("--open-mode=x", "job.sh:2: --open-mode: 'x' is not what it takes: it is append or"),
        ("-w n[1-", "job.sh:2: --nodelist: 'n[1-' is not what it takes: 'n[1-' is not a host list"),
        ("--gres=gpu:a(", "job.sh:2: --gres: 'gpu:a(' is not what it takes"),
        ("--switches=x", "job.sh:2: --switches: 'x' is not what it takes: a number"),
        ("-n x", "job.sh:2: --ntasks: 'x' is not what it takes: a number"),
    ],
)
def test_what_is_wrong_is_named_with_file_line_and_option(line: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        parse(f"{HEAD}#SBATCH {line}\ntrue\n", "job.sh")
    assert str(error.value).startswith(message)


def test_every_mistake_is_named() -> None:
    with pytest.raises(InputError) as error:
        parse(f'{HEAD}#SBATCH -N0\n#SBATCH "\n#SBATCH x\n', "job.sh")
    assert [problem.line for problem in error.value.problems] == [2, 3, 4]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("#SBATCH -N2\n", "job.sh:1: this is no script; the first line says #!/bin/bash"),
        ("", "job.sh:1: this is no script"),
        ("#!/bin/bash\ntrue\r\n", "job.sh:2: sbatch refuses lines that end as in DOS; dos2unix"),
        ("#!/bin/bash\n\0", "job.sh: sbatch refuses a script with a NUL in it"),
    ],
)
def test_what_is_no_script(script: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        parse(script, "job.sh")
    assert str(error.value).startswith(message)


def test_a_script_that_asks_for_nothing_gets_what_sbatch_gives() -> None:
    found = parse(HEAD)
    assert found.submission == Submission(export="ALL")
    assert (found.not_taken, found.ignored_lines) == ((), ())
