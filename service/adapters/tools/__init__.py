"""Tools, from files and from modules."""
