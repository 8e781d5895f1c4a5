"""What is known: nodes and NICs, what ports and paths report, and which way traffic goes."""
