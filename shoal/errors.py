"""Errors that a user can mend."""


class UserError(ValueError):
    """What is wrong, which value, what is allowed, what to do: one sentence, and the command line's exit code 2."""


class SettingsError(UserError):
    """A setting that cannot be used, said in one sentence."""


class StaffError(UserError):
    """A run has no workers, or none any more, where it has begun; what was saved is whole. The message ends with what
    to do before the run is started again."""


class Stopped(Exception):  # noqa: N818 - not an error
    """The user asked to stop; the message says how to go on."""
