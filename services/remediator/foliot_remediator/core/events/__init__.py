"""What events say, what speaks against them, and which incidents are open."""
