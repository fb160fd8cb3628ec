"""What is particular to each provider: contracts as data, schemes as pure functions."""
