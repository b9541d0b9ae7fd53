"""How long a test waits for what must come. Only a hang takes longer: a machine that is shared may stand still for
minutes. How soon a server answers, or a command stops that was told to, is itself tested: there each test says its own.
"""

PATIENCE = 600  # seconds
