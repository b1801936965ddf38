"""Side by side measurements: ours and a named peer, in turns, in one run."""
