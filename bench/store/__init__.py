"""What a build costs over histories of a thousand to a million rows, on real databases."""
