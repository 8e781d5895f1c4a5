"""The part of the remediator's shell that reads clocks."""
