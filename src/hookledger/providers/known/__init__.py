"""One module per provider, with its contracts as data. CONTRIBUTING.md shows how to add one."""
