"""Build reports: kept for a while, compared, and built again in another way."""
