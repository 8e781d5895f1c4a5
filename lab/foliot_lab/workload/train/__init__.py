"""A real training job as the fabric's load, and a bandwidth test of what it does there. Only programs here import PyTorch."""
