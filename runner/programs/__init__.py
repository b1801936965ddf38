"""Processes of programs: the guard that starts and stops them, their output, and shells next to them."""
