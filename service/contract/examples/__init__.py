"""Messages of each kind, as they stand on the wire."""
