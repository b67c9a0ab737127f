"""The wire contract as documents: AsyncAPI, JSON Schemas and the registry of errors."""
