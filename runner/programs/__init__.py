"""Processes of programs: the guard that starts and ends them, their output, and shells beside them."""
