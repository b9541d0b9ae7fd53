"""Imports of models that other toolkits trained, as model directories."""
