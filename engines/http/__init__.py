"""Engine for any program that serves HTTP on a port."""
