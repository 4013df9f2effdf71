"""Errors of the runtime: each message is one line that says what to do.

`exit_status` is what the command line returns for the kind: 1 anything else, 2 usage, 3 parity, 4 a file or text that
cannot be used, 5 something missing on this machine.
"""


class TfexportError(Exception):
    """Base of every error that a user can mend."""

    exit_status = 4


class BundleError(TfexportError):
    """A bundle that is missing, damaged, too new, or not a bundle."""


class OptionError(TfexportError):
    """Options that contradict each other or the bundle."""

    exit_status = 2


class InputError(TfexportError):
    """Text that cannot be translated as it is: not UTF-8, or longer than the model allows.

    Where one text of a list is at fault, `index` is its place in the list and `problem` is the message without it.
    """

    def __init__(self, problem: str, index: int | None = None) -> None:
        super().__init__(problem if index is None else f"text {index + 1} {problem}")
        self.problem = problem
        self.index = index


class TruncationWarning(UserWarning):
    """A text that was cut because the caller allowed it; `index` and `problem` are as in InputError."""

    def __init__(self, problem: str, index: int) -> None:
        super().__init__(f"text {index + 1} {problem}")
        self.problem = problem
        self.index = index


class UnavailableError(TfexportError):
    """A package, provider or device that is not there."""

    exit_status = 5
