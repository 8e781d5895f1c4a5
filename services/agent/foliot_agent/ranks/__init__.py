"""The Unix socket by which processes of training jobs say how far they are."""
