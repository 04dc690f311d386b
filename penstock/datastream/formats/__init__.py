"""Formats of files, under the names PyFlink gives them."""
