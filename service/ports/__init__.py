"""What the service needs of buses, stores, tools, tokenizers and summarizers."""
