"""The grid in simulated time: what arrives, what happens, and what came of it."""
