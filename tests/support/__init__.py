"""Helpers of the tests, one package per subject. Modules at this level are commands of the Makefile."""
