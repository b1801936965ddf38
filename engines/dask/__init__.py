"""Dask: a scheduler and workers that call functions."""
