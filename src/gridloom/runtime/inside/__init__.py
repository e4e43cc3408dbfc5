"""Cutting a model over the ranks of one site: tensor, pipeline, context, expert and data axes."""
