"""Convert models of other toolkits to model directories."""
