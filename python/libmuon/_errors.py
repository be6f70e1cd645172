"""Exceptions: what libmuon's statuses become."""

from __future__ import annotations


class Error(RuntimeError):
    """A call of libmuon failed. `status` is its name in C, such as "MUON_E_SHAPE"."""

    status: str = "MUON_E_ARG"


class ArgumentError(Error, ValueError):
    """An argument, a parameter or a setting is wrong. Nothing has changed."""


class CommunicationError(Error):
    """Ranks disagree, one did not answer in time, or the transport failed."""


class FileError(Error, OSError):
    """A checkpoint or a file of offloaded state cannot be read or written."""


class NoCheckpointError(FileError):
    """There is nothing to load yet, so that training starts from the beginning."""


_CLASSES: dict[str, type[Error]] = {
    "MUON_E_ARG": ArgumentError,
    "MUON_E_SHAPE": ArgumentError,
    "MUON_E_DTYPE": ArgumentError,
    "MUON_E_NAME": ArgumentError,
    "MUON_E_VALUE": ArgumentError,
    "MUON_E_GRAD": ArgumentError,
    "MUON_E_ALIAS": ArgumentError,
    "MUON_E_EMPTY": ArgumentError,
    "MUON_E_BUDGET": ArgumentError,
    "MUON_E_LAYOUT": ArgumentError,
    "MUON_E_COMM": CommunicationError,
    "MUON_E_DISAGREE": CommunicationError,
    "MUON_E_TIMEOUT": CommunicationError,
    "MUON_E_IO": FileError,
    "MUON_E_FORMAT": FileError,
    "MUON_E_NO_CHECKPOINT": NoCheckpointError,
}


def make(status: str, message: str) -> Error:
    """The exception for a status; the extension calls this."""
    error = _CLASSES.get(status, Error)(message)
    error.status = status
    return error
