"""Facts about hosts: CPU level, labels, measurements, and what programs require of them."""
