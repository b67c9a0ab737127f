"""What maintainers run now and then, and no release needs."""
