"""What commands print and draw: tables, lines, bars, charts."""
