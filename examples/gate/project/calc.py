"""A calculator of two numbers."""

import sys


def divide(a, b):
    if b == 0:
        raise ZeroDivisionError("there is no answer")
    return a / b


def main(words):
    a, _, _, b = words
    try:
        print(divide(int(a), int(b)))
    except ZeroDivisionError as error:
        print(error, file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
