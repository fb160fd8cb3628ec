"""Other people's libraries, each in a module of its own that nothing else imports."""
