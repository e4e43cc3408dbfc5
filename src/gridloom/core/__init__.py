"""Decisions: facts in, intentions out; no clock, no I/O and no chance of its own."""
