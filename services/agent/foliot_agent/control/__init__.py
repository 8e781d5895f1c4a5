"""What the agent does when something happens."""
