"""Programs for maintainers, which no release needs."""
