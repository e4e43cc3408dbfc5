"""Gridloom weaves many accelerator sites into one computer for training large models."""

__version__ = "0.1.0"
