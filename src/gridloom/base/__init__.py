"""Tools without a noun of ours: clocks, ids, units, encoding, errors."""
