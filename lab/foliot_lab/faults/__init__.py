"""What is done to a lab, and how far it reaches."""
