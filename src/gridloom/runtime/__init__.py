"""The training process: model, data, mesh, exchange of gradients, checkpoints, and the loop."""
