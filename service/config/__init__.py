"""Configuration: the only reader of YAML settings and of the environment."""
