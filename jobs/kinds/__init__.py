"""Each folder here is one kind of job. Nothing is registered by hand: `jobs.registry` lists the folders."""
