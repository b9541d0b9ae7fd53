"""The APIs of other vendors: LibreTranslate, DeepL and Google.

Requests and responses have the vendor's format, so a client only needs the server's address. Options that would change
the output but that heedful does not support (HTML, glossaries, formality) are rejected; hints are ignored.
"""
