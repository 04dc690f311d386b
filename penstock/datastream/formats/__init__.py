"""File formats, under PyFlink's names."""

from penstock.absent import explain_absent

explain_absent(__name__)
