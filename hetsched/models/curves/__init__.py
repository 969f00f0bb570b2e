"""Speed functions, one file each, and the fits they share."""
