"""Things with a disk: the journal, behind the port that `gridloom.ports.journal` shapes."""
