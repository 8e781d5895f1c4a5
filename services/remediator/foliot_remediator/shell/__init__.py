"""What of the remediator reads clocks and messages."""
