"""What benchmarks measure themselves against."""
