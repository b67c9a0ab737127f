"""The demo: a tour of the service on a bus, a store and a worker of its own."""
