"""Stored structures keep their format: bytes that an earlier version wrote decode to the same structures."""

import base64

import msgspec
import pytest
from msgspec.structs import replace
from stored_samples import METADATA, SAMPLES

from penstock.checkpoint.manifest import digest_of, load, manifest_name
from penstock.savepoint.format import load_savepoint
from penstock.state.blocks import Blocks
from penstock.state.local_storage import LocalStorage

STORED = {
    "manifest-3": """
        3AATA6lsaW5lYWdlLTEHBcQQMDEyMzQ1Njc4OWFiY2RlZqd0b2tlbi0xzwAAAYvP5WgCw4GlY291bnSaqmNvdW50IHRoZW0CzICB
        oW6pdmFsdWUgaW50kpW8ZGVsdGFzLzAwMDAwMDAwMDAwNy9hYi5hcnJvd80BLASSAAPAlahjZC5hcnJvdwUBkQHEBWRlbHRhgadv
        ZmZzZXRzlKVzcGxpdKNpbnSSkcQBAZCRxAFtgaVldmVudIIADAMPgaFulsPN6mDCkgUGw8OBoW6SxANvbmXEA3R3b6NzdHKRk6Nv
        dXQBxARwYWdlgaV3b3JkcyqBqW9mZnNldHMvNcQHdjEKe30KM4Kpb2Zmc2V0cy81B6lvZmZzZXRzLzQGgaVjb3VudIEDkwS7YmFz
        ZXMvMDAwMDAwMDAwMDA0L2VmLmFycm93zQOEgaVjb3VudIEDzJaBpWNvdW50l5IREsOBp3NwbGl0IDGTEM8AAAGLz+VoAMPDksPC
        kc8AAAGLz+VoAROSpXdvcmRzpmNsaWNrc5Krc2F2ZXBvaW50LTG3L3NhdmVwb2ludHMvc2F2ZXBvaW50LTGBpWNvdW50kgIE
    """,
    "version": """
        kgfEEDAxMjM0NTY3ODlhYmNkZWY=
    """,
    "savepoint-2": """
        jaZmb3JtYXQCqHBlbnN0b2NrozAuMaJpZKtzYXZlcG9pbnQtMaNqb2KoY291bnRpbmenY3JlYXRlZM8AAAGLz+VoA6VjbG9ja88A
        AAGLz+VoAqdsaW5lYWdlqWxpbmVhZ2UtMapjaGVja3BvaW50B6ViYXRjaAWpb3BlcmF0b3JzgaVjb3VudIOoc25hcHNob3SaqmNv
        dW50IHRoZW0CzICBoW6pdmFsdWUgaW50kpW8ZGVsdGFzLzAwMDAwMDAwMDAwNy9hYi5hcnJvd80BLASSAAPAlahjZC5hcnJvdwUB
        kQHEBWRlbHRhgadvZmZzZXRzlKVzcGxpdKNpbnSSkcQBAZCRxAFtgaVldmVudIIADAMPgaFulsPN6mDCkgUGw8OBoW6SxANvbmXE
        A3R3b6NzdHKrZGVyaXZlZF91aWTDpmJsb2Nrc4EDktksc3RhdGUvMDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWYuYXJy
        b3fNA4Snc291cmNlc4Gld29yZHOFpG5hbWWlV29yZHOrZGVyaXZlZF91aWTDp3JlY29yZHMqpnJlYWRlcqRyb3dzpmNvcGllZMOp
        cG9zaXRpb25zkoEFont9gaV3b3Jkc5GSgQWhM4GhMMQCdjGldGltZXOBpWNvdW50l5IREsOBp3NwbGl0IDGTEM8AAAGLz+VoAMPD
        ksPCkc8AAAGLz+VoARM=
    """,
    "unfinished-part": """
        l6Qvb3V0pWxpbmVzpDIwMjalNy0xLTALDJGTsDIwMjYvLnBhcnQtNy0xLTAKAg==
    """,
    "prepared-parts": """
        laQvb3V0p3Rva2VuLTHDkZWkL291dKsucGFydC03LTEtMKpwYXJ0LTctMS0wCpKhYaFikaFj
    """,
    "manifest-4": """
        3AAUBKlsaW5lYWdlLTEHBcQQMDEyMzQ1Njc4OWFiY2RlZqd0b2tlbi0xzwAAAYvP5WgCw4GlY291bnSaqmNvdW50IHRoZW0C
        zICBoW6pdmFsdWUgaW50kpW8ZGVsdGFzLzAwMDAwMDAwMDAwNy9hYi5hcnJvd80BLASSAAPAlahjZC5hcnJvdwUBkQHEBWRl
        bHRhgadvZmZzZXRzlKVzcGxpdKNpbnSSkcQBAZCRxAFtgaVldmVudIIADAMPgaFulsPN6mDCkgUGw8OBoW6SxANvbmXEA3R3
        b6NzdHKRk6NvdXQBxARwYWdlgaV3b3JkcyqBqW9mZnNldHMvNcQHdjEKe30KM4Kpb2Zmc2V0cy81B6lvZmZzZXRzLzQGgaVj
        b3VudIEYlAS7YmFzZXMvMDAwMDAwMDAwMDA0L2VmLmFycm93zQOEIIGlY291bnSBA8yWgaVjb3VudJeSERLDgadzcGxpdCAx
        kxDPAAABi8/laADDw5LDwpHPAAABi8/laAETkqV3b3Jkc6ZjbGlja3OSq3NhdmVwb2ludC0xty9zYXZlcG9pbnRzL3NhdmVw
        b2ludC0xgaVjb3VudJICBIGlY291bnSSzIAQ
    """,
    "manifest-4-queryable": """
        3AAVBKlsaW5lYWdlLTEHBcQQMDEyMzQ1Njc4OWFiY2RlZqd0b2tlbi0xzwAAAYvP5WgCw4GlY291bnSaqmNvdW50IHRoZW0C
        zICBoW6pdmFsdWUgaW50kpW8ZGVsdGFzLzAwMDAwMDAwMDAwNy9hYi5hcnJvd80BLASSAAPAlahjZC5hcnJvdwUBkQHEBWRl
        bHRhgadvZmZzZXRzlKVzcGxpdKNpbnSSkcQBAZCRxAFtgaVldmVudIIADAMPgaFulsPN6mDCkgUGw8OBoW6SxANvbmXEA3R3
        b6NzdHKRk6NvdXQBxARwYWdlgaV3b3JkcyqBqW9mZnNldHMvNcQHdjEKe30KM4Kpb2Zmc2V0cy81B6lvZmZzZXRzLzQGgaVj
        b3VudIEYlAS7YmFzZXMvMDAwMDAwMDAwMDA0L2VmLmFycm93zQOEIIGlY291bnSBA8yWgaVjb3VudJeSERLDgadzcGxpdCAx
        kxDPAAABi8/laADDw5LDwpHPAAABi8/laAETkqV3b3Jkc6ZjbGlja3OSq3NhdmVwb2ludC0xty9zYXZlcG9pbnRzL3NhdmVw
        b2ludC0xgaVjb3VudJICBIGlY291bnSSzIAQgaZjb3VudHOSpWNvdW50oW4=
    """,
    "manifest": """
        3AAWBKlsaW5lYWdlLTEHBcQQMDEyMzQ1Njc4OWFiY2RlZqd0b2tlbi0xzwAAAYvP5WgCw4GlY291bnSaqmNvdW50IHRoZW0C
        zICBoW6pdmFsdWUgaW50kpW8ZGVsdGFzLzAwMDAwMDAwMDAwNy9hYi5hcnJvd80BLASSAAPAlahjZC5hcnJvdwUBkQHEBWRl
        bHRhgadvZmZzZXRzlKVzcGxpdKNpbnSSkcQBAZCRxAFtgaVldmVudIIADAMPgaFulsPN6mDCkgUGw8OBoW6SxANvbmXEA3R3
        b6NzdHKRk6NvdXQBxARwYWdlgaV3b3JkcyqBqW9mZnNldHMvNcQHdjEKe30KM4Kpb2Zmc2V0cy81B6lvZmZzZXRzLzQGgaVj
        b3VudIEYlAS7YmFzZXMvMDAwMDAwMDAwMDA0L2VmLmFycm93zQOEIIGlY291bnSBA8yWgaVjb3VudJeSERLDgadzcGxpdCAx
        kxDPAAABi8/laADDw5LDwpHPAAABi8/laAETkqV3b3Jkc6ZjbGlja3OSq3NhdmVwb2ludC0xty9zYXZlcG9pbnRzL3NhdmVw
        b2ludC0xgaVjb3VudJICBIGlY291bnSSzIAQgaZjb3VudHOSpWNvdW50oW6ncm9ja3NkYg==
    """,
    "savepoint-3": """
        jaZmb3JtYXQDqHBlbnN0b2NrozAuMaJpZKtzYXZlcG9pbnQtMaNqb2KoY291bnRpbmenY3JlYXRlZM8AAAGLz+VoA6VjbG9j
        a88AAAGLz+VoAqdsaW5lYWdlqWxpbmVhZ2UtMapjaGVja3BvaW50B6ViYXRjaAWpb3BlcmF0b3JzgaVjb3VudISoc25hcHNo
        b3SaqmNvdW50IHRoZW0CzICBoW6pdmFsdWUgaW50kpW8ZGVsdGFzLzAwMDAwMDAwMDAwNy9hYi5hcnJvd80BLASSAAPAlahj
        ZC5hcnJvdwUBkQHEBWRlbHRhgadvZmZzZXRzlKVzcGxpdKNpbnSSkcQBAZCRxAFtgaVldmVudIIADAMPgaFulsPN6mDCkgUG
        w8OBoW6SxANvbmXEA3R3b6NzdHKrZGVyaXZlZF91aWTDpmJsb2Nrc4EDktksc3RhdGUvMDEyMzQ1Njc4OWFiY2RlZjAxMjM0
        NTY3ODlhYmNkZWYuYXJyb3fNA4SrYmxvY2tfY291bnQQp3NvdXJjZXOBpXdvcmRzhaRuYW1lpVdvcmRzq2Rlcml2ZWRfdWlk
        w6dyZWNvcmRzKqZyZWFkZXKkcm93c6Zjb3BpZWTDqXBvc2l0aW9uc5KBBaJ7fYGld29yZHORkoEFoTOBoTDEAnYxpXRpbWVz
        gaVjb3VudJeSERLDgadzcGxpdCAxkxDPAAABi8/laADDw5LDwpHPAAABi8/laAET
    """,
    "savepoint": """
        jqZmb3JtYXQDqHBlbnN0b2NrozAuMaJpZKtzYXZlcG9pbnQtMaNqb2KoY291bnRpbmenY3JlYXRlZM8AAAGLz+VoA6VjbG9j
        a88AAAGLz+VoAqdsaW5lYWdlqWxpbmVhZ2UtMapjaGVja3BvaW50B6ViYXRjaAWpb3BlcmF0b3JzgaVjb3VudISoc25hcHNo
        b3SaqmNvdW50IHRoZW0CzICBoW6pdmFsdWUgaW50kpW8ZGVsdGFzLzAwMDAwMDAwMDAwNy9hYi5hcnJvd80BLASSAAPAlahj
        ZC5hcnJvdwUBkQHEBWRlbHRhgadvZmZzZXRzlKVzcGxpdKNpbnSSkcQBAZCRxAFtgaVldmVudIIADAMPgaFulsPN6mDCkgUG
        w8OBoW6SxANvbmXEA3R3b6NzdHKrZGVyaXZlZF91aWTDpmJsb2Nrc4EDktksc3RhdGUvMDEyMzQ1Njc4OWFiY2RlZjAxMjM0
        NTY3ODlhYmNkZWYuYXJyb3fNA4SrYmxvY2tfY291bnQQp3NvdXJjZXOBpXdvcmRzhaRuYW1lpVdvcmRzq2Rlcml2ZWRfdWlk
        w6dyZWNvcmRzKqZyZWFkZXKkcm93c6Zjb3BpZWTDqXBvc2l0aW9uc5KBBaJ7fYGld29yZHORkoEFoTOBoTDEAnYxpXRpbWVz
        gaVjb3VudJeSERLDgadzcGxpdCAxkxDPAAABi8/laADDw5LDwpHPAAABi8/laAETqXF1ZXJ5YWJsZYGmY291bnRzkqVjb3Vu
        dKFu
    """,
    "write-ahead-pieces": """
        kZSod2FsLzcvYWIJAsQBeA==
    """,
}
"""Written by earlier versions, one entry per format. Never regenerate them: existing jobs have such files."""


def stored(name):
    return base64.b64decode(STORED[name])


@pytest.mark.parametrize("name", SAMPLES)
def test_bytes_of_an_earlier_version_decode_to_the_same_structure(name):
    sample = SAMPLES[name]
    kind = list[type(sample[0])] if isinstance(sample, list) else type(sample)
    assert msgspec.msgpack.decode(stored(name), type=kind) == sample


@pytest.mark.parametrize("name", SAMPLES)
def test_a_structure_encodes_to_the_bytes_of_an_earlier_version(name):
    assert msgspec.msgpack.encode(SAMPLES[name]) == stored(name)


def test_every_field_of_a_sample_is_set():
    """A field with its default value would not reveal that its position changed."""
    for name, sample in SAMPLES.items():
        for each in sample if isinstance(sample, list) else [sample]:
            unset = [field.name for field in msgspec.structs.fields(each) if not getattr(each, field.name)]
            assert (name, unset) == (name, [])


@pytest.mark.parametrize("name", ["manifest-3", "manifest-4", "manifest-4-queryable", "manifest"])
def test_a_manifest_file_of_an_earlier_version_is_loaded_in_the_current_format(tmp_path, name):
    storage, body = LocalStorage(tmp_path), stored(name)
    storage.publish(manifest_name(7), digest_of(body) + body)
    manifest, version = load(storage, 7)
    sample = SAMPLES["manifest"]
    expected = sample if name == "manifest" else replace(sample, backend="")
    assert manifest == (replace(expected, queryable={}) if name in ("manifest-3", "manifest-4") else expected)
    assert version.digest == digest_of(body)


@pytest.mark.parametrize(
    ("name", "number", "blocks"), [("savepoint-2", 2, 0), ("savepoint-3", 3, 16), ("savepoint", 3, 16)]
)
def test_a_savepoint_of_an_earlier_version_is_loaded(tmp_path, name, number, blocks):
    storage, body = LocalStorage(tmp_path), stored(name)
    storage.publish("_metadata", b"PENSTOCK SAVEPOINT\n" + digest_of(body) + body)
    operators = {uid: replace(each, block_count=blocks) for uid, each in METADATA.operators.items()}
    metadata = load_savepoint(storage)
    queryable = METADATA.queryable if name == "savepoint" else {}
    assert metadata == replace(METADATA, format=number, operators=operators, queryable=queryable)
    assert metadata.operators["count"].all_blocks == Blocks(max_parallelism=128, count=16)
