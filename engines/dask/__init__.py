"""Dask: a scheduler and workers that run functions."""
