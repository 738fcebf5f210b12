"""What every product stands on: files, the home, what travels, processes."""
