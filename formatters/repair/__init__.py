"""Repair any history, so that APIs accept it."""
