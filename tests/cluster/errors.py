"""The two ways in which a run can end early."""


class Unable(Exception):
    """The machine lacks something; the message is one sentence for a person. Exit code 2."""


class Broken(Exception):
    """Something that was started did not work; the message says what, and where its log is."""
