"""What a person may see and do, over HTTP: the same services as the command line, behind tokens with roles."""
