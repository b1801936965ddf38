"""Engine for Dask, which consists of a scheduler and workers that run Python functions."""
