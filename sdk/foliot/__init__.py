"""The library of Foliot's services and tools, and of training jobs that read the time."""
