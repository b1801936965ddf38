"""The Ciw peer of P3: M/M/c as in Ciw's documentation."""

from __future__ import annotations

import ciw


def queue(cores: int, load: float, customers: int) -> int:
    """Simulates about this many customers of mean service 1; returns how many had arrived."""
    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Exponential(rate=load * cores)],
        service_distributions=[ciw.dists.Exponential(rate=1.0)],
        number_of_servers=[cores],
    )
    simulation = ciw.Simulation(network)
    simulation.simulate_until_max_customers(customers, method="Arrive")
    return customers
