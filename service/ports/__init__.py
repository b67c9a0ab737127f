"""The interfaces of buses, stores, tools, tokenizers and summarizers."""
