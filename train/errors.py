"""What ends a run with a sentence instead of a traceback."""


class ConfigError(Exception):
    """The configuration cannot be followed: for each thing that is wrong a line with the field, what was found, what is
    allowed."""


class RunError(Exception):
    """One sentence: why the run cannot start or go on."""
