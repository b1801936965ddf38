"""Facts about hosts (CPU level, labels and measurements), and what programs require of hosts."""
