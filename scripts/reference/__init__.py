"""The pages of docs/ that are made from the code: ``python -m scripts.reference docs``."""
