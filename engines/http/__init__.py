"""Any program that serves HTTP on a port."""
