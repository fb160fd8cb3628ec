"""The operator API over HTTP: the same functions as the command line, behind tokens with roles."""
