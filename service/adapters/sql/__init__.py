"""History and profiles in an SQL database."""
