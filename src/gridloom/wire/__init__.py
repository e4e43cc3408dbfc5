"""Everything that crosses a process boundary: documents, reports, orders, the launch contract."""
