"""Thin adapters for other people's trainers; their packages are optional."""
