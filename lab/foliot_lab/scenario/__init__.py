"""What a run is: the description, and what is wrong with it."""
