"""The share of a prompt that is unchanged since the previous build, in growing conversations."""
