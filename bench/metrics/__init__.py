"""One module per metric; each measures every place it is given and answers with lines for the table."""
