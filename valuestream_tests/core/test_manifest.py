"""The manifest as a value: safe paths (ruling 14), checksums as values (case 15), the digest (M11)."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from valuestream_dagster.core.manifest import Checksum, SealedFile, digest_of, normal_path, path_fault

SHA = "1e563229350c63233df7b24a64b79c80cbe5a3fcd0a84d87dcf52abce2439ce9"
SEGMENTS = st.sampled_from(["..", ".", "", "a", "b.csv", "..a", "C:", "~", "a..", "...", "http:", "é", " "])
HEX = st.text("0123456789abcdef", min_size=64, max_size=64)
FILES = st.lists(
    st.builds(
        SealedFile,
        role=st.sampled_from(["data", "deletes"]),
        path=st.text(max_size=5),
        sha256=HEX,
        bytes=st.integers(0, 10**15),
        uri=st.text(max_size=5),
        version=st.text(max_size=3),
        rows=st.none() | st.integers(0, 9),
    ),
    max_size=6,
)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("", "empty"),
        (" a.csv", "white space"),
        ("../x.csv", "'..'"),
        ("a/../../x.csv", "'..'"),
        ("a/..", "'..'"),
        ("a\\..\\x.csv", "'..'"),
        ("/etc/hostname", "absolute"),
        ("~/x.csv", "absolute"),
        ("\\\\server\\share\\x.csv", "absolute"),
        ("C:\\x.csv", "drive"),
        ("https://host/x.csv", "URL"),
        ("file:x.csv", "URL"),
        ("a\\b.csv", "forward slashes"),
        ("a\x00.csv", "control"),
        ("a\n.csv", "control"),
        ("a\ud800.csv", "control"),
        ("a" * 1025, "longer"),
    ],
)
def test_a_path_that_may_lead_elsewhere_is_refused_with_its_reason(path: str, why: str) -> None:
    assert why in (path_fault(path) or "nothing")


@pytest.mark.parametrize("path", ["a.csv", "a/b c.csv", "./a.csv", "a//b.csv", "..a/b..csv", "été.csv", "a" * 1024])
def test_a_path_within_the_folder_is_safe(path: str) -> None:
    assert path_fault(path) is None


@given(st.lists(SEGMENTS, max_size=6), st.sampled_from(["/", "\\"]))
def test_no_safe_path_ever_leaves_its_folder(segments: list[str], separator: str) -> None:
    path = separator.join(segments)
    if path_fault(path) is None:
        normal = normal_path(path)
        assert not normal.startswith(("/", "~"))
        assert ".." not in normal.split("/")
        assert "\\" not in normal


@given(st.text(alphabet="a./", max_size=12))
def test_normalising_twice_is_normalising_once(path: str) -> None:
    assert normal_path(normal_path(path)) == normal_path(path)


@pytest.mark.parametrize(
    ("algorithm", "value", "expected"),
    [
        ("sha256", SHA, Checksum("sha256", SHA)),
        ("SHA-256", SHA.upper(), Checksum("sha256", SHA)),
        ("md5", SHA, None),
        ("sha256", SHA[:-1], None),
        ("sha256", SHA[:-1] + "g", None),
        ("crc32", "00000000", None),
    ],
)
def test_a_checksum_is_a_value_of_its_algorithm_in_either_case(
    algorithm: str, value: str, expected: Checksum | None
) -> None:
    assert Checksum.parse(algorithm, value) == expected


def test_anyone_can_recompute_the_digest_of_a_delivery() -> None:
    files = [SealedFile("data", "b", SHA, 43, "u"), SealedFile("data", "a", "0" * 64, 7, "u")]
    lines = f"data {'0' * 64} 7\ndata {SHA} 43\n"
    assert digest_of(files).hex == hashlib.sha256(lines.encode()).hexdigest()


@given(FILES, st.randoms(use_true_random=False), st.text(max_size=5))
def test_names_order_places_and_declared_rows_do_not_enter_the_digest(
    files: list[SealedFile], random: object, name: str
) -> None:
    other = [replace(file, path=name, uri=name, version=name, rows=None) for file in files]
    random.shuffle(other)  # type: ignore[attr-defined]
    assert digest_of(other) == digest_of(files)


@given(FILES.filter(bool), st.sampled_from(["role", "bytes", "twice"]))
def test_role_size_and_number_of_files_enter_the_digest(files: list[SealedFile], what: str) -> None:
    first = files[0]
    changed = {
        "role": [replace(first, role="other"), *files[1:]],
        "bytes": [replace(first, bytes=first.bytes + 1), *files[1:]],
        "twice": [first, *files],
    }[what]
    assert digest_of(changed) != digest_of(files)
