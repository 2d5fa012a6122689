"""What went wrong in a query or a pipeline's file, in one sentence. The whole story is for the log.

An error of Spark's is Java's message, which may hold a Python traceback, which may hold another error of Spark's.
"""

import re
import traceback

LONGEST = 400
# `package.module.Class: message` at the start of a line: how a Python traceback, and Java's own, ends.
PYTHON_ENDING = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?([A-Za-z_]\w*)(?:: (.*))?$")
JAVA_CAUSE = re.compile(r"^(?:Caused by: )?(?:[a-z_]\w*\.)+[A-Z]\w*(?:Exception|Error): (.+)$", re.MULTILINE)
ERROR_CLASS = re.compile(r"\[[A-Z0-9_.]+\] ")
SQL_STATE = re.compile(r" ?SQLSTATE: \w{5}")
TRACEBACK = "Traceback (most recent call last):"
OUR_OWN = ("QueryFailed", "SettingsRefused", "SinkRefused")  # they say all there is to say


def in_a_sentence(text: str) -> str:
    """The innermost reason that a text of Spark's gives."""
    if TRACEBACK in text:
        found = _end_of_traceback(text.rpartition(TRACEBACK)[2])
        if found:
            return _short(found)
    causes = JAVA_CAUSE.findall(text)
    return _short(causes[-1] if causes else text.strip().partition("\n")[0])


def _end_of_traceback(text: str) -> str:
    """`Class: message` behind the indented lines; a message may have several lines."""
    lines = text.strip("\n").split("\n")
    for number, line in enumerate(lines):
        if not line or line.startswith((" ", "\t")):
            continue
        match = PYTHON_ENDING.match(line)
        if match is None:
            return line
        message = [match[2] or ""]
        for more in lines[number + 1 :]:
            if not more.strip() or more.startswith(("\t", "JVM stacktrace", "==")):
                break
            message.append(more.strip())
        said = " ".join(part for part in message if part)
        if not said:
            return match[1]
        return said if match[1] in OUR_OWN or match[1].endswith("SparkException") else f"{match[1]}: {said}"
    return ""


def _short(text: str) -> str:
    plain = " ".join(SQL_STATE.sub("", ERROR_CLASS.sub("", text)).split())
    return plain if len(plain) <= LONGEST else f"{plain[: LONGEST - 1]}…"


def of_exception(error: BaseException, file: str = "") -> str:
    """An exception that a pipeline's file let through, with the line of the file where it happened."""
    where = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename == file:
            where = f" (line {frame.lineno})"
    said = str(error)
    name = type(error).__name__
    if TRACEBACK in said:
        return f"{in_a_sentence(said)}{where}"
    if type(error).__module__.startswith(("pyspark.", "py4j.")):
        return f"{_short(said.strip().partition(chr(10))[0]) or name}{where}"
    return f"{_short(f'{name}: {said}' if said else name)}{where}"
