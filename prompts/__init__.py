"""What the system itself says: its identity and the account of its tools."""
