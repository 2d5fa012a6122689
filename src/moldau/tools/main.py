"""The command `moldau`: find the sub-command, run it, and turn failures into one line and an exit code.

Sub-commands are imported when they are asked for, so none pays for another's dependencies. `up` and `broker` do not
even load Typer, which costs a tenth of a second and ten megabytes.

Exit codes: 0 done, 1 failed, 2 used wrongly, 130 interrupted with Ctrl-C. A server (up, broker, cluster up, zookeeper,
pipeline run) is meant to be stopped with Ctrl-C or SIGTERM: 0.
"""

import errno
import os
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from moldau.tools.broker import launch as broker
from moldau.tools.common.failure import FAILED, INTERRUPTED, OK, CommandError, discard_output, tell_failure

if TYPE_CHECKING:
    from typer import TyperException

PROGRAM = "moldau"
HELP = ("-h", "--help")
COMPLETE_VARIABLE = "_MOLDAU_COMPLETE"
TRACEBACK_VARIABLE = "MOLDAU_TRACEBACK"

# Pydantic's name of an error → what to say.
NUMBER_PROBLEMS = {
    "int_parsing": "'{given}' is not a whole number",
    "int_parsing_size": "the number is too large",
    "float_parsing": "'{given}' is not a number",
    "greater_than_equal": "{given} is less than {ge}",
    "less_than_equal": "{given} is more than {le}",
}


def main() -> None:
    """The entry point of the installed command."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        try:
            return _dispatch(list(arguments))
        finally:
            # Here, because at interpreter exit a reader that left causes noise instead of an exception.
            sys.stdout.flush()
    except CommandError as failure:
        tell_failure(str(failure))
        return failure.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return _reader_left()
    except OSError as full:
        if full.errno != errno.ENOSPC:
            raise
        discard_output()
        tell_failure("cannot write the output: no space left on device")
        return FAILED


def _dispatch(arguments: list[str]) -> int:
    # A shell that completes a word sets this variable, and Typer answers.
    completing = COMPLETE_VARIABLE in os.environ
    launch = None if completing else broker.read_arguments(arguments)
    if launch is not None:
        if sys.platform == "win32":
            raise CommandError("the broker does not run on Windows itself. Install it in WSL2: wsl --install")
        return broker.start(launch)
    return _run_typer(arguments, completing)


def _run_typer(arguments: list[str], completing: bool) -> int:
    from typer import Abort, Exit, TyperException
    from typer.main import get_command

    from moldau.client.admin.errors import AdminError
    from moldau.tools.root import app

    sys.excepthook = _tell_unexpected
    command = get_command(app)
    page = None if completing else _help_page(command, arguments)
    if page is not None:
        print(page)
        return OK
    if completing:
        command.main(prog_name=PROGRAM, complete_var=COMPLETE_VARIABLE)
    try:
        with command.make_context(PROGRAM, arguments or ["--help"]) as context:
            command.invoke(context)
    except Exit as done:
        return done.exit_code
    except Abort:  # Ctrl-C or Ctrl-D at a question
        return INTERRUPTED
    except SystemExit:  # typer, when the reader of a help page has left
        return OK
    except TyperException as error:
        tell_failure(_usage_line(error))
        return error.exit_code
    except AdminError as problem:
        from moldau.tools.common.remedies import command_error

        raise command_error(problem) from problem
    return OK


def _help_page(command: Any, arguments: list[str]) -> str | None:
    """The page that `… --help` asks for. Parsing it as a command line would load pydantic, which takes 0.1 s."""
    if not arguments or arguments[-1] not in HELP:
        return None
    context = command.context_class(command, info_name=PROGRAM, **command.context_settings)
    for word in arguments[:-1]:
        find = getattr(context.command, "get_command", None)
        found = find(context, word) if find is not None else None
        if found is None:
            return None
        context = found.context_class(found, info_name=word, parent=context)
    page: str = context.command.get_help(context)
    return page


def _usage_line(error: "TyperException") -> str:
    """Typer's error about the command line, on one line, with the command that explains it."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else PROGRAM
    error.message = _number_problem(error.__cause__) or error.message
    message = error.format_message().strip().replace(": Value error, ", ": ")
    stop = "" if message.endswith((".", "?", "!")) else "."
    return f"{message[:1].lower()}{message[1:]}{stop} See: {command} --help"


def _number_problem(cause: BaseException | None) -> str:
    """Pydantic's error about a number, with the number; nothing for other errors."""
    details: list[Any] = getattr(cause, "errors", list)()
    if not details:
        return ""
    wording = NUMBER_PROBLEMS.get(details[0]["type"], "")
    return wording.format(given=details[0]["input"], **details[0].get("ctx", {}))


def _reader_left() -> int:
    """`moldau consume … | head` has read enough: nothing failed."""
    discard_output()
    return OK


def _tell_unexpected(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if os.environ.get(TRACEBACK_VARIABLE):
        sys.__excepthook__(kind, error, trace)
        return
    tell_failure(
        f"unexpected {kind.__name__}: {error}. This is a bug; set {TRACEBACK_VARIABLE}=1 to see where it happened"
    )


if __name__ == "__main__":
    main()
