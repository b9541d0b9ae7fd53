"""Word vectors: learn them from text, read and write .vec files, find neighbors and analogies, draw a map."""

from heedful.embeddings.vectors import WordVectors, read_vectors, write_vectors

__all__ = ["WordVectors", "read_vectors", "write_vectors"]
