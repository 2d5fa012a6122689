"""The APIs and versions that ApiVersions must list."""

# The APIs of this broker with the versions that Kafka 4.3 serves; Produce is advertised from 0 (KAFKA-18659).
SERVED = {
    0: (0, 13),
    1: (4, 18),
    2: (1, 11),
    3: (0, 13),
    10: (0, 6),
    18: (0, 4),
    19: (2, 7),
    20: (1, 6),
    21: (0, 2),
    22: (0, 5),  # 6 exists, but is not stable
    23: (2, 4),
    32: (1, 4),
    33: (0, 2),
    35: (1, 5),
    37: (0, 3),
    44: (0, 1),
    57: (0, 2),
    60: (0, 2),
    61: (0, 0),
    74: (0, 1),
    75: (0, 0),
}
