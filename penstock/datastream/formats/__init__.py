"""Formats of files, under the names PyFlink gives them."""

from penstock.absent import explain_absent

explain_absent(__name__)
