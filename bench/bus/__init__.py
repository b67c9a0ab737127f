"""What the bus costs: the whole runner, beside an echo without any service in it."""
