"""The cost of builds over histories of a thousand to a million rows, on real databases."""
