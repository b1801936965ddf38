"""What every worker does, whatever its device: its life, its lanes, its beats, its figures."""
