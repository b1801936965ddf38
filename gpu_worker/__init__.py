"""GPU worker: one process that uses one GPU. It keeps two leases in flight so that the GPU is never idle."""
