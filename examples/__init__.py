"""Scripts that show the Python client. Run one with `python examples/NAME.py` while a cluster is running."""
