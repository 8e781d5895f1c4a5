"""The agent's reactions when something happens."""
