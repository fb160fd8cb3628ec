"""How requests are authenticated: pure functions over bytes, one module per kind."""
