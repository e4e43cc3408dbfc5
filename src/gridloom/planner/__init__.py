"""Estimates before anything runs: parameters, memory, traffic, and the shapes a job could take."""
