"""The worker: takes deliveries, answers them, records history."""
