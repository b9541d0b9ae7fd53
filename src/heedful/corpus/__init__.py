"""From files that people have to shards of clean pairs: read, check, filter, deduplicate, run on many."""
