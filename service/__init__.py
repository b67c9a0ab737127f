"""The service: gather facts, fit blocks into a budget, answer on the bus."""
