"""What users pass: checks of arguments, paths, names, and the small files that are written there."""
