"""The probe's computations, without I/O."""
