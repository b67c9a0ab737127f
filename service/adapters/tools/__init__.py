"""Tool definitions from files, modules and servers."""
