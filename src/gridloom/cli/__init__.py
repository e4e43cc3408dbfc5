"""The command line: entry points, and the only place that joins ports to implementations."""
