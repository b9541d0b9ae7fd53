"""Corpora: read, check, repair, filter, deduplicate; on one machine or on many."""
