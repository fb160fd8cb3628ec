"""How a request proves that it comes from the provider: pure functions over bytes, one module a kind."""
