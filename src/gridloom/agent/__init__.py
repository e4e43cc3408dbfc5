"""Lives beside the training processes: starts them, watches them, and never leaves one behind."""
