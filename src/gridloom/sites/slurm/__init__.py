"""Sites under Slurm: what is asked of it as text, and what it answers as records."""
