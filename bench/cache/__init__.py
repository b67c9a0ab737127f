"""How much of a prompt stands as it stood in the build before, while a conversation grows."""
