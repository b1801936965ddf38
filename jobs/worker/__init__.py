"""Work of every worker, whatever its device: its life, its lanes, its beats, its figures."""
