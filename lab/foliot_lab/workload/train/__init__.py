"""A real training job as the fabric's load, and a bandwidth test of its all-reduces.

Only programs here import PyTorch.
"""
