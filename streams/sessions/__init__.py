"""Sessions: folds their records and analyses their audio."""
