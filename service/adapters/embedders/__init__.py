"""Embedders: a model in this process, or one over HTTP."""
