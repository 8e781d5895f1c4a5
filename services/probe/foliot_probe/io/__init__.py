"""The probe's sockets, files and kernel interfaces."""
