"""The control plane: facts to step to commit to dispatch, by one writer."""
