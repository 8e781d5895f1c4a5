"""Actions: guards, the decision, commands and their outcomes."""
