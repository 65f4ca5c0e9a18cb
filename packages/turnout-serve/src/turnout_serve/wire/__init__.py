"""Formats and limits of what a server and its clients send each other."""
