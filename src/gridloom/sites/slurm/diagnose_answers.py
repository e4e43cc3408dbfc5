"""What Slurm's own sentences mean, and what helps (pure)."""

from gridloom.sites.slurm.engine import is_away

_ASK = "ask who runs the cluster"
_FILE = "under `slurm:` of the site in the grid file"

_AWAY = f"{_ASK} whether slurmctld runs, and look that this machine reaches it; its jobs go on"
_TROUBLES = (
    (
        "has no command",
        f"write `environment: {{PATH: ...}}` {_FILE}, with the directory of Slurm's commands there",
    ),
    ("there is no command", "run gridloom on a login host of the cluster, or install its client"),
    (
        "SLURM_CONF is",
        f"write `environment: {{SLURM_CONF: FILE}}` {_FILE}, with the cluster's own file",
    ),
    ("process configuration file", f"write `environment: {{SLURM_CONF: FILE}}` {_FILE}"),
    ("expired", "get a new token (scontrol token), where `rest:` of the site says it lies"),
    ("does not accept the token", f"{_ASK} whether slurmctld runs; else get a new token"),
    ("token", f"mend `token_file:` or `token_command:` of `rest:` {_FILE}"),
    ("Incompatible versions", "use the commands of the cluster's own release of Slurm"),
    ("rotocol authentication", "munged must run here with the key of the cluster"),
    ("Munge", "munged must run here with the key of the cluster"),
    ("munge", "munged must run here with the key of the cluster"),
    ("ot authori", f"{_ASK} whether your user may use Slurm from here"),
    ("ermission denied", f"{_ASK} whether your user may use Slurm from here"),
    ("ccess denied", f"{_ASK} whether your user may use Slurm from here"),
    (
        "has not answered",
        f"{_ASK} whether slurmctld is overloaded, and look that this machine reaches it",
    ),
)

_REFUSALS = (
    ("gres", f"mend `gres:` {_FILE}; `scontrol show node` tells what nodes have"),
    ("partition not available", f"wait until it opens, or write another `partition:` {_FILE}"),
    ("account/partition", f"mend `account:` {_FILE}; `sacctmgr show assoc user=$USER` lists yours"),
    ("partition", f"mend `partition:` {_FILE}; `sinfo -s` lists them"),
    ("account", f"mend `account:` {_FILE}; `sacctmgr show assoc user=$USER` lists yours"),
    ("qos", f"mend `qos:` {_FILE}; `sacctmgr show assoc user=$USER format=qos` lists yours"),
    ("feature", f"mend `constraint:` {_FILE}; `sinfo -o '%N %f'` lists features"),
    ("reservation", f"mend `reservation:` {_FILE}; `scontrol show reservation` lists them"),
    ("time limit", f"shorten `time_limit:` {_FILE}"),
    ("node configuration", "so many nodes and devices a node are not in service there now"),
    ("node count", "so many nodes are not to be had by one job there"),
    ("node name", "the nodes of the grid file are not those of Slurm: leave `nodes:` out"),
    ("memory", "ask for less memory"),
    ("controller", f"{_ASK} whether slurmctld runs"),
)


def trouble_remedy(sentence: str) -> str:
    """Return what helps when Slurm could not be asked, by what was said."""
    away = _AWAY if is_away(sentence) else f"{_ASK}; `scontrol ping` on this machine should say UP"
    return _first(sentence, _TROUBLES) or away


def trial_remedy(sentence: str) -> str:
    """Return what helps when Slurm would not take a job, by what it said."""
    return _first(sentence.lower(), _REFUSALS) or f"{_ASK}"


def _first(sentence: str, known: tuple[tuple[str, str], ...]) -> str:
    return next((remedy for words, remedy in known if words in sentence), "")
