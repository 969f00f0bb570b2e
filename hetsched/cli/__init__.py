"""The command line: a Typer application, one file per command, and its output."""
