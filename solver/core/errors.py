"""The two ways a request can fail: the input is bad, or the answer is no."""


class AdaptPipeError(Exception):
    """Base of every error that AdaptPipe raises for its user."""


class InputError(AdaptPipeError, ValueError):
    """The input is bad: the message gives place, value, bound and remedy. The command line exits with 2."""


class NoAnswerError(AdaptPipeError):
    """The input is fine and the answer is no: infeasible, invalid, or nothing found. The command line exits with 1."""
