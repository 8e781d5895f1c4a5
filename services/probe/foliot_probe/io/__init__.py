"""What of the probe touches sockets, files and the kernel."""
