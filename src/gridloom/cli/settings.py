"""Settings: the only reader of the environment of the command line."""

import os
from dataclasses import dataclass
from pathlib import Path

import platformdirs

HOME_VARIABLE = "GRIDLOOM_HOME"
GRID_VARIABLE = "GRIDLOOM_GRID"


@dataclass(frozen=True)
class Settings:
    """What the environment says.

    Attributes:
        home: State directory: the journal, the runs, the log of the background control plane.
        grid: Grid file to use when neither the flag nor the job names one; None for none.
    """

    home: Path
    grid: Path | None

    @property
    def runs(self) -> Path:
        """Directory of all run directories."""
        return self.home / "runs"

    @property
    def journal(self) -> Path:
        """File of the journal."""
        return self.home / "journal.sqlite"

    @property
    def lock(self) -> Path:
        """File whose lock the one writer holds."""
        return self.home / "control.lock"

    @property
    def heir_lock(self) -> Path:
        """File whose lock is held by a process that waits to become the one writer."""
        return self.home / "heir.lock"

    @property
    def handin_lock(self) -> Path:
        """File whose lock is held while a job is handed in."""
        return self.home / "handin.lock"

    @property
    def told_nodes(self) -> Path:
        """Directory of what sites last told of their nodes."""
        return self.home / "sites"

    @property
    def control_log(self) -> Path:
        """Output of the background control plane."""
        return self.home / "control.log"


def read() -> Settings:
    """Return the settings of this process."""
    home = os.environ.get(HOME_VARIABLE)
    grid = os.environ.get(GRID_VARIABLE)
    return Settings(
        home=Path(home or platformdirs.user_data_dir("gridloom", appauthor=False)).absolute(),
        grid=Path(grid).absolute() if grid else None,
    )
