"""The federation of the tests of turnout-serve, for tests of what simulations and servers share."""

from importlib import import_module

World = import_module("packages.turnout-serve.tests.world").World
