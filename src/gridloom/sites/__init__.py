"""Drivers: how each kind of site is reached."""
