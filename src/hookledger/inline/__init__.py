"""Answers: the event of a request is handled while its sender waits."""
