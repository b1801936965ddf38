"""Commands of `cluster`, one module for each group."""
