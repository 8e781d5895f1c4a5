"""What agents say to each other without the bus."""
