"""Events, messages and settings in words."""
