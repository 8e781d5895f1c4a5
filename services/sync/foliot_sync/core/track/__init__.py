"""What is known of each clock over time."""
