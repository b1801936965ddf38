"""Facts about hosts (CPU level, labels and measurements), and the requirements of programs on hosts."""
