"""Calls one function of a Python library (AR-04).

The request is a JSON object on stdin: import_path, function, args and kwargs. The answer is the
last line of stdout: MARKER, and a JSON object with a value or an error. What the library writes to
stdout goes to stderr, also from C code and child processes.
"""

import json
import os
import sys

MARKER = "evalbox/answer/v1 "


def plain(value, above=()):
    """Returns a value as JSON has it."""
    import base64
    import dataclasses
    import datetime
    import decimal
    import enum
    import math

    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, enum.Enum):
        return plain(value.value, above)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("the result has the number %s, which JSON does not have" % float(value))
        return float(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"base64": base64.b64encode(value).decode("ascii")}
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    if id(value) in above:
        raise ValueError("the result contains itself")
    above += (id(value),)
    if isinstance(value, dict):
        return {key_of(key): plain(item, above) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, above) for item in value]
    if isinstance(value, (set, frozenset)):
        return sort([plain(item, above) for item in value])
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name), above) for field in dataclasses.fields(value)}
    for name in ("tolist", "item"):  # of arrays and scalars, also of numpy
        convert = getattr(type(value), name, None)
        if callable(convert):
            return plain(convert(value), above)
    kind = type(value)
    raise TypeError("the result has a value of type %s.%s, which JSON does not have" % (kind.__module__, kind.__qualname__))


def key_of(key):
    """Returns the key of a mapping as text."""
    if isinstance(key, str):
        return str(key)
    if isinstance(key, int) and not isinstance(key, bool):
        return str(int(key))
    raise TypeError("the result has a key of type %s; keys must be text" % type(key).__qualname__)


def sort(items):
    """Sorts the items of a set, so that equal sets have equal answers."""
    return sorted(items, key=lambda item: json.dumps(item, sort_keys=True))


def call(request):
    """Calls the function of a request, and returns its result as JSON has it."""
    import importlib

    found = importlib.import_module(request["import_path"])
    for name in request["function"].split("."):
        found = getattr(found, name)
    value = found(*request["args"], **request["kwargs"])
    if hasattr(type(value), "__await__"):
        import asyncio

        async def wait():
            return await value

        value = asyncio.run(wait())
    return plain(value)


def failure(error):
    """Returns an exception as the answer has it. The exception may be hostile to its reader."""
    import traceback

    try:
        message = str(error)
    except BaseException:
        message = "the exception has no text"
    try:
        trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    except BaseException:
        trace = ""
    return {"type": type(error).__name__, "message": message, "traceback": trace}


def write(fd, text):
    data = text.encode("utf-8", "backslashreplace")
    while data:
        data = data[os.write(fd, data):]


def main():
    request = json.loads(sys.stdin.buffer.read())
    out = os.dup(1)  # children do not inherit it
    os.dup2(2, 1)
    try:
        answer, code = {"value": call(request)}, 0
        line = json.dumps(answer, allow_nan=False)
    except BaseException as error:  # also SystemExit
        answer, code = {"error": failure(error)}, 1
        write(2, answer["error"]["traceback"])
        line = json.dumps(answer)
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except Exception:
        pass  # the library has closed or replaced them
    write(out, "\n" + MARKER + line + "\n")
    return code


sys.exit(main())
