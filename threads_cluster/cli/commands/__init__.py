"""Commands of `cluster`, with one module for each group of commands."""
