"""What is done: guards, the decision, commands and their outcomes."""
