"""Moldau: a streaming platform that speaks Kafka's wire protocol."""

from moldau import compiled as compiled  # before any other module of the package: it decides how they are loaded
from moldau.exports import __all__ as __all__
from moldau.exports import __dir__ as __dir__
from moldau.exports import __getattr__ as __getattr__  # the client's names are loaded when they are first used

__version__ = "0.1.0"
