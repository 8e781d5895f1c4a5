"""The way back: probation, restoring, and taking over from another remediator."""
