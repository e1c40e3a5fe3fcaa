"""What every store must do, proven on each of them by the same tests, one file per noun."""
