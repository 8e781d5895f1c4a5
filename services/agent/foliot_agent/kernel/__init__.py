"""The kernel's objects: devices, routes that are put back, a dry run of it all."""
