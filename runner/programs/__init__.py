"""Processes of programs: guard processes that start and stop them, their output, and interactive shells."""
