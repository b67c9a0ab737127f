"""The HTTP interface: inspector, API, health and metrics pages."""
