"""Exit statuses of ``foliot lab``."""

EX_WRONG, EX_USAGE, EX_IMPOSSIBLE = 1, 2, 77
"""An outcome was wrong; the scenario cannot be read; this machine cannot do it (automake's "skipped")."""
