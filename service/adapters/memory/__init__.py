"""The bus and the stores within one process: for tests, demonstrations and agents in process."""
