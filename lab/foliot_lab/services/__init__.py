"""The services in a lab, and the processes around them."""
