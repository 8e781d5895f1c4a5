"""Errors of GPUs after which nothing should run on their node."""
