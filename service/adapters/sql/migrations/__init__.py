"""The schema's history: Alembic's environment, and a file for each revision."""
