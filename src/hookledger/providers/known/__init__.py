"""One module a provider, each with its contracts as data. CONTRIBUTING.md shows how to add one."""
