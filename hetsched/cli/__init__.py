"""The command line: Typer on top, one file a command, and what they print."""
