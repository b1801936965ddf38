"""Everything that is said to Redis: the lease scripts, the bells of RQ, marks."""
