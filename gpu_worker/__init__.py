"""The GPU worker: one process that owns one GPU, with two leases in flight so that the device never waits."""
