"""The broker process of `moldau.testing.Broker`: settings as arguments, its address on standard output once it answers.

Without the command line's parser it starts sooner, which counts in a test.
"""

import sys

from moldau.broker.node import Started, run


def main() -> None:
    properties = dict(argument.split("=", 1) for argument in sys.argv[1:])
    sys.exit(run(properties, _announce))


def _announce(started: Started) -> None:
    print(f"ready {started.addresses[0]}", flush=True)


if __name__ == "__main__":
    main()
