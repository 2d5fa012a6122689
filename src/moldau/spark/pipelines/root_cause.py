"""Root cause of a failed query or pipeline file, in one sentence. The full stack trace goes to the log.

An error of Spark is the message of a Java exception. It may contain a Python traceback, and that another Spark error.
"""

import re
import traceback

MAX_CHARACTERS = 400
# `package.module.Class: message` at the start of a line: the last line of a Python traceback.
PYTHON_ERROR = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?([A-Za-z_]\w*)(?:: (.*))?$")
JAVA_CAUSE = re.compile(r"^(?:Caused by: )?(?:[a-z_]\w*\.)+[A-Z]\w*(?:Exception|Error): (.+)$", re.MULTILINE)
ERROR_CLASS = re.compile(r"\[[A-Z0-9_.]+\] ")
SQL_STATE = re.compile(r" ?SQLSTATE: \w{5}")
TRACEBACK = "Traceback (most recent call last):"
SELF_EXPLAINING = ("QueryFailed", "SettingsRefused")  # ours: the class name adds nothing
# As a worker sends them without a traceback (plain_errors.py). A message ends where Spark's text goes on.
PLAIN_ERROR = re.compile(
    rf"moldau\.[\w.]+\.(?:{'|'.join(SELF_EXPLAINING)}): (.+?)(?=\n\s*(?:at |SQLSTATE|JVM stacktrace|==)|\s*\Z)",
    re.DOTALL,
)


def root_cause(text: str) -> str:
    """The innermost cause in the text of a Spark error."""
    plain = PLAIN_ERROR.findall(text)
    if plain and TRACEBACK not in text:
        return _shorten(plain[-1])
    if TRACEBACK in text:
        found = _end_of_traceback(text.rpartition(TRACEBACK)[2])
        if found:
            return _shorten(found)
    causes = JAVA_CAUSE.findall(text)
    return _shorten(causes[-1] if causes else text.strip().partition("\n")[0])


def _end_of_traceback(text: str) -> str:
    """`Class: message` after the indented lines; a message may have several lines."""
    lines = text.strip("\n").split("\n")
    for number, line in enumerate(lines):
        if not line or line.startswith((" ", "\t")):
            continue
        match = PYTHON_ERROR.match(line)
        if match is None:
            return line
        parts = [match[2] or ""]
        for more in lines[number + 1 :]:
            if not more.strip() or more.startswith(("\t", "JVM stacktrace", "==")):
                break
            parts.append(more.strip())
        message = " ".join(part for part in parts if part)
        if not message:
            return match[1]
        if match[1] in SELF_EXPLAINING or match[1].endswith("SparkException"):
            return message
        return f"{match[1]}: {message}"
    return ""


def _shorten(text: str) -> str:
    plain = " ".join(SQL_STATE.sub("", ERROR_CLASS.sub("", text)).split())
    return plain if len(plain) <= MAX_CHARACTERS else f"{plain[: MAX_CHARACTERS - 1]}…"


def describe_exception(error: BaseException, file: str = "") -> str:
    """An exception that a pipeline's file raised, with the line of the file."""
    line = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename == file:
            line = f" (line {frame.lineno})"
    message = str(error)
    name = type(error).__name__
    if TRACEBACK in message or PLAIN_ERROR.search(message):
        return f"{root_cause(message)}{line}"
    if type(error).__module__.startswith(("pyspark.", "py4j.")):
        return f"{_shorten(message.strip().partition(chr(10))[0]) or name}{line}"
    return f"{_shorten(f'{name}: {message}' if message else name)}{line}"
