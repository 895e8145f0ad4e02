"""The command line: ``candid compare``, ``fit``, ``predict``, ``methods``, ``info``, ``bench``."""

from candid.cli.app import app

__all__ = ["app"]
