"""Validators: what is wrong with the messages of a request, in plain sentences."""
