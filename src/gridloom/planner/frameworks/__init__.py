"""A plan as the launch settings of public training frameworks, and such settings as a plan."""
