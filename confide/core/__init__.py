"""What every room shares: records, registries, doors and the one primitive."""
