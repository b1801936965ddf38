"""Any program that answers HTTP on a port."""
