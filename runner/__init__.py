"""The worker that runs programs: each of its slots has a guard, which lets nothing outlive the program that it ran."""
