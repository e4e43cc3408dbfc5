"""A login host over SSH: one kept connection, commands, files. Nothing of any scheduler."""
