"""Output of the commands: tables, lines, bars, charts."""
